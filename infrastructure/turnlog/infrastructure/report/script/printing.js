// The theme, and the printed form.

const themes = { system: "", light: "light", dark: "dark" };
const theme = byId("theme");
let themeName = "system";
theme.addEventListener("click", () => {
  const names = Object.keys(themes);
  themeName = names[(names.indexOf(themeName) + 1) % names.length];
  document.documentElement.dataset.theme = themes[themeName];
  theme.textContent = `Theme: ${themeName}`;
});

let opened = [];
window.addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const fold of opened) fold.open = true;
});
window.addEventListener("afterprint", () => {
  for (const fold of opened) fold.open = false;
});

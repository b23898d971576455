// Going somewhere: the slider, buttons, links.

const slider = byId("slider");
const cursor = byId("cursor");
const bar = byId("bar");
const status = byId("status");

const remember = (hash) => {
  try {
    history.replaceState(null, "", hash);
  } catch {
    // A page that is embedded somewhere may not change its address.
  }
};

// Twice, because what had not been drawn yet gets its real height only then.
const scrollTo = (node, block = "start") => {
  node.scrollIntoView({ block });
  requestAnimationFrame(() => node.scrollIntoView({ block }));
};

const isStuck = () => bar.getBoundingClientRect().top <= 1;

const go = (version, { tell = false, scroll = true } = {}) => {
  slider.value = version;
  show(version);
  remember(`#v${version}`);
  if (scroll && now.entry && now.mode === "log") scrollTo(now.entry.node, "center");
  if (tell) status.textContent = slider.getAttribute("aria-valuetext");
};

let due = 0;
slider.addEventListener("input", () => {
  cancelAnimationFrame(due);
  due = requestAnimationFrame(() => show(Number(slider.value)));
});
slider.addEventListener("change", () => {
  cancelAnimationFrame(due);
  go(Number(slider.value), { scroll: isStuck() });
});

byId("plot").addEventListener("click", (event) => {
  const { left, width } = byId("plot").getBoundingClientRect();
  go(Math.round(Math.min(1, Math.max(0, (event.clientX - left) / width)) * head), {
    tell: true,
    scroll: false,
  });
});

const boundaryEnds = views.filter((view) => view.version >= first).map((view) => view.until);
const jump = (id, versions, forwards) => {
  const button = byId(id);
  button.addEventListener("click", () => {
    const found = forwards
      ? versions.find((one) => one > now.version)
      : versions.findLast((one) => one < now.version);
    if (found === undefined) status.textContent = "There is none further.";
    else go(found, { tell: true, scroll: isStuck() });
  });
  button.hidden = !versions.length;
};
jump("previous-boundary", boundaryEnds, false);
jump("next-boundary", boundaryEnds, true);

const jumpToCalls = () => {
  const versions = entries.filter((entry) => callAt(entry.v)).map((entry) => entry.v);
  jump("previous-call", versions, false);
  jump("next-call", versions, true);
};

const boundaryButtons = [];
const buildBoundaries = () => {
  const found = entries.filter((entry) => entry.boundary);
  byId("boundaries").hidden = !found.length;
  for (const entry of found) {
    const until = untilOf.get(entry.v) ?? entry.v;
    const button = make(
      "button",
      { type: "button" },
      make("span", { class: "version" }, `v${number.format(entry.v)}`),
      make("span", {}, `${number.format(entry.boundary.covered)} left`),
      make("span", { class: "saved" }, `−${number.format(entry.boundary.saved)} tokens`),
    );
    button.addEventListener("click", () => go(until, { tell: true }));
    boundaryButtons.push({ button, until, version: entry.v });
    byId("boundary-list").append(make("li", {}, button));
  }
};
let marked = null;
const markBoundary = (version) => {
  const found = boundaryButtons.findLast((one) => one.version <= version)?.button ?? null;
  if (found === marked) return;
  marked?.removeAttribute("aria-current");
  found?.setAttribute("aria-current", "true");
  marked = found;
};

for (const input of document.querySelectorAll("input[name=mode]")) {
  input.addEventListener("change", () => {
    now.mode = input.value;
    showMode();
    search();
    status.textContent =
      now.mode === "told" ? `Only what was told at version ${number.format(now.version)}.` : "The whole log.";
  });
}

const isShown = (entry) => entry.node && (now.mode === "log" || TOLD.has(entry.kind));

const open = (entry, block = "start") => {
  if (now.mode === "told" && !isShown(entry)) {
    document.querySelector("input[name=mode][value=log]").click();
  }
  scrollTo(entry.node, block);
  entry.node.focus({ preventScroll: true });
};

const follow = () => {
  const hash = location.hash;
  const version = /^#v(\d{1,15})$/u.exec(hash);
  if (version) {
    const wanted = Math.min(Number(version[1]), head);
    slider.value = wanted;
    show(wanted);
    if (now.entry && now.mode === "log") open(now.entry, "center");
    return true;
  }
  if (!hash.startsWith("#e-")) return false;
  let id = hash.slice(3);
  try {
    id = decodeURIComponent(id);
  } catch {
    // It is taken as it stands.
  }
  const entry = byEventId.get(id);
  if (entry) open(entry);
  else {
    notice.hidden = false;
    notice.textContent = "The entry that the address names is not on this page.";
  }
  return Boolean(entry);
};
window.addEventListener("hashchange", follow);

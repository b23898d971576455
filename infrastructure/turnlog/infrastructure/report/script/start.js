// The beginning.

byId("told").append(...Object.values(toldSections).map(({ section }) => section));
build();
buildBoundaries();
jumpToCalls();
if (carriedLight) {
  list.before(
    make(
      "p",
      { class: "notice" },
      `${count(carriedLight, "message")} that the model was told here are shown in earlier parts.`,
    ),
  );
}
document.body.dataset.mode = now.mode;
const begin = Math.min(last, head);
slider.value = begin;
show(begin);
follow();
document.documentElement.dataset.ready = "";

// Search.

const query = byId("query");
const hits = { of: "", entries: [], at: -1 };
const canHighlight = "highlights" in CSS;

const textOf = (part) =>
  [part.text, part.name, part.what, part.uri, ...(part.parts || []).map(textOf)].filter(Boolean).join("\n");
const haystack = (entry) =>
  (entry.haystack ??= entry.role
    ? entry.redacted
      ? ""
      : entry.parts.map(textOf).join("\n")
    : entry.boundary
      ? ""
      : `${entry.type}\n${entry.payload}`);

const ranges = (entry, pattern, room) => {
  const found = [];
  const walker = document.createTreeWalker(
    entry.node.querySelector(".body") || entry.node,
    NodeFilter.SHOW_TEXT,
  );
  for (let node = walker.nextNode(); node && found.length < room; node = walker.nextNode()) {
    for (const match of node.data.matchAll(pattern)) {
      const range = new Range();
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      found.push(range);
    }
  }
  return found;
};

const tellHits = (pattern) => {
  const total = hits.entries.length;
  byId("hits").textContent = !pattern
    ? ""
    : !total
      ? "none"
      : `${hits.at + 1 || "–"} of ${number.format(total)}`;
  for (const id of ["previous-hit", "next-hit"]) byId(id).disabled = !total;
};

const patternOf = () => {
  const text = query.value.trim();
  return text ? new RegExp(text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"), "giu") : null;
};

const search = () => {
  const pattern = patternOf();
  hits.of = query.value;
  hits.entries = pattern
    ? entries.filter((entry) => isShown(entry) && haystack(entry).search(pattern) >= 0)
    : [];
  hits.at = -1;
  if (canHighlight) {
    CSS.highlights.delete("found");
    CSS.highlights.delete("found-now");
    if (pattern) {
      const all = new Highlight();
      let room = 2000;
      for (const entry of hits.entries) {
        for (const range of ranges(entry, pattern, room)) {
          all.add(range);
          room -= 1;
        }
        if (room <= 0) break;
      }
      CSS.highlights.set("found", all);
    }
  }
  tellHits(pattern);
};

const step = (by) => {
  const total = hits.entries.length;
  if (!total) return;
  hits.at = hits.at < 0 ? (by > 0 ? 0 : total - 1) : (hits.at + by + total) % total;
  const entry = hits.entries[hits.at];
  const pattern = patternOf();
  for (const fold of entry.node.querySelectorAll("details")) {
    if (fold.textContent.search(pattern) >= 0) fold.open = true;
  }
  if (canHighlight) CSS.highlights.set("found-now", new Highlight(...ranges(entry, pattern, 200)));
  scrollTo(entry.node);
  tellHits(pattern);
  status.textContent = `Hit ${hits.at + 1} of ${total}: ${describe(entry)}`;
};

let typing = 0;
query.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => search(), 150);
});
query.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.isComposing) {
    event.preventDefault();
    clearTimeout(typing);
    if (query.value !== hits.of) search();
    step(event.shiftKey ? -1 : 1);
  } else if (event.key === "Escape" && query.value) {
    event.preventDefault();
    query.value = "";
    search();
  }
});
byId("search").addEventListener("submit", (event) => event.preventDefault());
byId("next-hit").addEventListener("click", () => step(1));
byId("previous-hit").addEventListener("click", () => step(-1));

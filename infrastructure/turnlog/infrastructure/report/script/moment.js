// Showing a moment.

const now = { version: -1, mode: "log", view: null, entry: null };
const shownKinds = new Array(messages.length).fill("");

const markKinds = (view) => {
  for (let place = 0; place < messages.length; place += 1) {
    const kind = view.kinds.get(place) || (place >= view.until ? "later" : "covered");
    if (shownKinds[place] === kind) continue;
    shownKinds[place] = kind;
    const entry = messages[place];
    if (!entry.node) continue;
    entry.kind = kind;
    entry.node.dataset.kind = kind;
    entry.chip.firstChild.data = KINDS[kind];
  }
  for (const entry of entries) {
    if (!entry.role) entry.node.classList.toggle("later", entry.v > view.version);
  }
};

const entryAt = (version) => {
  for (let at = version; at >= first; at -= 1) {
    const entry = byVersion.get(at);
    if (entry) return entry;
  }
  return null;
};

const describe = (entry) => {
  if (!entry) return "";
  if (entry.boundary) return "Compaction";
  if (entry.call) return `Call of ${plain(entry.call.model || "a model")}`;
  if (!entry.role) return plain(entry.type);
  const part = entry.parts.find((one) => one.text || one.name) || {};
  const text =
    part.is === "result"
      ? `${part.name || calls.get(part.id)?.name || ""} answered`
      : part.is === "call"
        ? `calls ${part.name}`
        : part.text || "";
  return `${ROLES[entry.role]}: ${beginning(text, 90)}`;
};

const showMoment = (view) => {
  const entry = entryAt(view.version);
  now.entry?.node.classList.remove("now");
  now.entry?.node.removeAttribute("aria-current");
  now.entry = entry;
  entry?.node.classList.add("now");
  entry?.node.setAttribute("aria-current", "true");
  byId("moment").replaceChildren(
    make("a", { href: `#v${view.version}`, class: "version" }, `Version ${number.format(view.version)}`),
    make("span", { class: "of" }, ` of ${number.format(head)}`),
    make("span", { class: "snippet", dir: "auto" }, describe(entry)),
  );
  slider.setAttribute(
    "aria-valuetext",
    `Version ${number.format(view.version)} of ${number.format(head)}, ${describe(entry)}. The model was told ${count(view.sent, "message")}, about ${count(view.tokens, "token")}.`,
  );
  cursor.style.left = `${(100 * view.version) / Math.max(1, head)}%`;
  slider.style.setProperty("--done", `${(100 * view.version) / Math.max(1, head)}%`);
};

const figure = (n, what) =>
  make(
    "span",
    { class: "group-count" },
    number.format(n),
    make("span", { class: "hidden-label" }, ` ${what}${n === 1 ? "" : "s"}`),
  );

const showTotals = (view) => {
  byId("print-moment").textContent = `At version ${number.format(view.version)} of ${number.format(head)}`;
  byId("told-tokens").textContent = `≈ ${number.format(view.tokens)} tokens`;
  byId("told-count").textContent = `in ${count(view.sent, "message")}`;
  const rows = [
    make(
      "li",
      { class: "group-head", "aria-hidden": "true" },
      ...["messages", "tokens"].map((what) => make("span", { class: "group-count" }, what)),
    ),
  ];
  const shares = [];
  for (const [kind, [name, why]] of Object.entries(GROUPS)) {
    const group = view.groups[kind];
    if (!group) continue;
    const share = make("span", { class: `share-${kind}` });
    share.style.flexGrow = group.tokens;
    shares.push(share);
    rows.push(
      make(
        "li",
        { class: `group-${kind}` },
        make("span", { class: "dot", "aria-hidden": "true" }),
        make(
          "span",
          { class: "group-name", title: why },
          kind === "since" && !newestView(view.version) ? "Said so far" : name,
        ),
        figure(group.places.length, "message"),
        figure(group.tokens, "token"),
      ),
    );
  }
  const counts = { covered: view.until - view.kinds.size, omitted: 0, replaced: 0, elsewhere: 0 };
  for (const kind of view.kinds.values()) if (kind in counts) counts[kind] += 1;
  for (const [kind, amount] of Object.entries(counts)) {
    if (!amount) continue;
    rows.push(
      make(
        "li",
        { class: "group-covered" },
        make("span", { class: "dot", "aria-hidden": "true" }),
        make("span", { class: "group-name" }, KINDS[kind]),
        figure(amount, "message"),
        make("span", { class: "group-count" }, "not told"),
      ),
    );
  }
  const made = newestView(view.version);
  byId("inside").hidden = !made || view.version >= made.until;
  if (made)
    byId("inside").textContent =
      `Inside one write, which is complete at version ${number.format(made.until)}: no model was told this.`;
  byId("share").replaceChildren(...shares);
  byId("groups").replaceChildren(...rows);
};

const toldSections = Object.fromEntries(
  Object.entries(GROUPS).map(([kind, [name, why]]) => {
    const title = make("h2", { id: `told-${kind}` }, name);
    const about = make("p", { class: "aside-note" });
    const nodes = make("div", {});
    const section = make(
      "section",
      { class: `told-group ${kind}`, "aria-labelledby": `told-${kind}` },
      title,
      about,
      nodes,
    );
    return [kind, { section, title, about, nodes, why, chunks: [], held: [] }];
  }),
);

// All messages that a boundary makes the view of and those up to the next one, by group. Which of them are
// there at a version their kinds say, so that the lists change at boundaries only.
const toldUntilNext = (made) => {
  const next = made ? views[views.indexOf(made) + 1] : views[0];
  const named = new Set();
  const places = { pinned: [], summary: [], preserved: [], since: [] };
  for (const kind of ["pinned", "summary", "preserved"]) {
    for (const [from, to] of made ? made[kind] : []) {
      for (let place = from; place <= to; place += 1) {
        named.add(place);
        places[kind].push(place);
      }
    }
  }
  const until = next ? placeAfter(next.version) : messages.length;
  for (let place = made ? placeAfter(made.version) : 0; place < until; place += 1) {
    if (!named.has(place)) places.since.push(place);
  }
  return places;
};

const TOLD = new Set(["pinned", "summary", "preserved", "since"]);
let laidOut;

const layOut = (made) => {
  if (made === laidOut) return;
  laidOut = made;
  for (const [kind, places] of Object.entries(toldUntilNext(made))) {
    const held = places.map((place) => messages[place]).filter((entry) => entry.node);
    const section = toldSections[kind];
    section.chunks = chunksOf(held.map((entry) => entry.node));
    section.held = held;
    section.nodes.replaceChildren(...section.chunks);
  }
};

const showTold = (view) => {
  const made = newestView(view.version);
  layOut(made);
  for (const [kind, { section, title, about, chunks, held, why }] of Object.entries(toldSections)) {
    const group = view.groups[kind];
    section.hidden = !group;
    chunks.forEach((chunk, at) => {
      chunk.hidden = !held.slice(at * CHUNK, (at + 1) * CHUNK).some((entry) => TOLD.has(entry.kind));
    });
    if (!group) continue;
    const missing = group.places.filter((place) => !messages[place].node).length;
    const isAll = kind === "since" && !made;
    title.textContent = isAll ? "Everything so far" : GROUPS[kind][0];
    about.textContent = `${count(group.places.length, "message")}, about ${count(group.tokens, "token")}; ${isAll ? "nothing was compacted yet" : why}${missing ? `; ${number.format(missing)} of them are shown in earlier parts` : ""}`;
  }
};

const showMode = () => {
  byId("told").hidden = now.mode !== "told";
  list.hidden = now.mode === "told";
  document.body.dataset.mode = now.mode;
  laidOut = undefined;
  if (now.mode === "told") {
    showTold(now.view);
    list.replaceChildren();
  } else {
    fillLog();
    for (const { nodes } of Object.values(toldSections)) nodes.replaceChildren();
  }
};

const notice = byId("notice");
const otherPart = (version) => data.parts.find((part) => part.first <= version && version <= part.last);

const tellElsewhere = (version) => {
  const part = otherPart(version);
  notice.hidden = false;
  notice.replaceChildren(
    `Version ${number.format(version)} is in another part of this report: `,
    make(
      "a",
      { href: `${encodeURIComponent(part.name)}#v${version}` },
      `versions ${number.format(part.first)}–${number.format(part.last)}`,
    ),
  );
};

const show = (version) => {
  if (version < first || version > last) tellElsewhere(version);
  else notice.hidden = true;
  const at = Math.min(last, Math.max(first, version));
  if (at === now.version) return;
  now.version = at;
  const call = callAt(at);
  now.view = call ? viewOfCall(call) : viewAt(at);
  markKinds(now.view);
  if (now.mode === "told") showTold(now.view);
  showMoment(now.view);
  showTotals(now.view);
  showCall(call);
  markBoundary(at);
};

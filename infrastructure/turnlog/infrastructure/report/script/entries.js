// The entries of the log, and the lists that hold them.

const fragment = (entry) => `#e-${encodeURIComponent(entry.id)}`;

const timeNode = (entry) => {
  const title = entry.recorded ? `said ${entry.said}, recorded ${entry.recorded}` : entry.said;
  return make(
    "time",
    { datetime: entry.said, title },
    `${entry.said.slice(0, 10)} ${entry.said.slice(11, 16)}`,
  );
};

const entryHead = (entry, title, chip) =>
  make(
    "div",
    { class: "entry-head" },
    make("h3", {}, title),
    chip,
    entry.branch ? make("span", { class: "badge", dir: "auto" }, `branch ${plain(entry.branch)}`) : null,
    entry.carried ? make("span", { class: "badge" }, "of an earlier part") : null,
    entry.turn ? make("span", { class: "turn" }, `turn ${number.format(entry.turn)}`) : null,
    make("span", { class: "spread" }),
    entry.tokens === undefined ? null : make("span", { class: "cost" }, count(entry.tokens, "token")),
    timeNode(entry),
    make(
      "a",
      { class: "place", href: fragment(entry), title: `Link to this entry, version ${entry.v}` },
      `v${entry.v}`,
    ),
  );

const messageNode = (entry) => {
  entry.chip = make("span", { class: "chip" }, KINDS.later);
  const body = entry.redacted
    ? [redactedNode(entry.redacted)]
    : entry.parts.length
      ? entry.parts.map((part) => partNode(part, entry))
      : [make("p", { class: "aside-note" }, "Nothing was said")];
  return make(
    "li",
    {
      class: `entry message ${entry.role}${entry.synthetic ? " synthetic" : ""}`,
      id: `e-${entry.id}`,
      tabindex: "-1",
    },
    entryHead(
      entry,
      entry.synthetic ? `${ROLES[entry.role]}, written by a compaction` : ROLES[entry.role],
      entry.chip,
    ),
    make("div", { class: "body" }, ...body),
    entry.about ? fold("about", [make("b", {}, "Context and metadata")], textNode(entry.about, true)) : null,
  );
};

const redactedNode = (redaction) =>
  make(
    "p",
    { class: "redacted" },
    make("b", {}, "Redacted"),
    ...[redaction.reason, redaction.by && `by ${redaction.by}`, redaction.at]
      .filter(Boolean)
      .map((text) => make("span", { dir: "auto" }, plain(text))),
  );

const boundaryNode = (entry) => {
  const { covered, kept, summary, saved, strategy, trigger } = entry.boundary;
  const until = untilOf.get(entry.v) ?? entry.v;
  const button = (version, label) => {
    const node = make("button", { type: "button" }, label);
    node.addEventListener("click", () => go(version, { tell: true }));
    return node;
  };
  return make(
    "li",
    { class: "entry boundary", id: `e-${entry.id}`, tabindex: "-1" },
    entryHead(entry, "Compaction", null),
    make(
      "p",
      { class: "did" },
      `${count(covered, "message")} left the view, ${number.format(kept)} kept${summary ? `, ${number.format(summary)} of summary` : ""}. About ${count(saved, "token")} saved.`,
    ),
    strategy || trigger
      ? make(
          "p",
          { class: "aside-note", dir: "auto" },
          plain([strategy, trigger].filter(Boolean).join(", when ")),
        )
      : null,
    make("div", { class: "around" }, button(Math.max(first, entry.v - 1), "Before"), button(until, "After")),
  );
};

// Whether a call was one of the model whose view the page shows.
const isOfBranch = (entry) => (entry.branch ?? null) === branch;

const callNode = (entry) => {
  const { model, bytes, attempt, view } = entry.call;
  const button = make("button", { type: "button" }, "What it was told");
  button.addEventListener("click", () => go(entry.v, { tell: true }));
  return make(
    "li",
    { class: "entry call-entry", id: `e-${entry.id}`, tabindex: "-1" },
    entryHead(entry, attempt > 1 ? `Call, attempt ${number.format(attempt)}` : "Call", null),
    make(
      "p",
      { class: "did", dir: "auto" },
      [plain(model || "a model"), `view of version ${number.format(view)}`, size(bytes)]
        .filter(Boolean)
        .join(", "),
    ),
    isOfBranch(entry) ? make("div", { class: "around" }, button) : null,
    fold("record", [make("b", {}, "As it was recorded")], textNode(entry.payload, true)),
  );
};

const figuresOf = ({ finish, latency, input, output, cost }) =>
  [
    input === undefined ? "" : `${number.format(input)} tokens in`,
    output === undefined ? "" : `${number.format(output)} tokens out`,
    latency === undefined ? "" : `${number.format(Math.round(latency))} ms`,
    cost || "",
    finish ? `ended by ${finish}` : "",
  ].filter(Boolean);

const replyNode = (entry) =>
  make(
    "li",
    { class: "entry event", id: `e-${entry.id}`, tabindex: "-1" },
    entryHead(entry, "Answer to the call", null),
    make("p", { class: "aside-note", dir: "auto" }, plain(figuresOf(entry.reply).join(", "))),
    fold("record", [make("b", {}, "As it was recorded")], textNode(entry.payload, true)),
  );

// Why the page cannot say which messages of the view a call held.
const inexact = (call) =>
  call.made_elsewhere
    ? "The application made this request itself, so it may have held something else than the view: its body says what."
    : "A filter left some of the view out: the body of the request says which messages.";

const showCall = (entry) => {
  const place = byId("call");
  if (!entry) return place.replaceChildren();
  const { call } = entry;
  const reply = replies.get(`${call.call}/${call.attempt}`);
  const facts = [
    ["Model", call.model],
    ["Body", size(call.bytes)],
    ["Renderer", call.renderer],
    ["Tools", call.tools?.join(", ")],
  ].filter(([, value]) => value);
  const inner = (one) => {
    const of =
      one.place === undefined
        ? ""
        : `, in place of v${messages[viewAt(call.view).told[one.place]]?.v ?? "?"}`;
    return fold("record", [make("b", {}, one.what + of)], ...one.parts.map((part) => partNode(part, {})));
  };
  return place.replaceChildren(
    ...[
      make("h2", {}, "Call"),
      make(
        "dl",
        { class: "call-facts" },
        ...facts.flatMap(([name, value]) => [
          make("dt", {}, name),
          make("dd", { dir: "auto" }, plain(String(value))),
        ]),
      ),
      reply
        ? make("p", { class: "aside-note", dir: "auto" }, plain(figuresOf(reply).join(", ")))
        : make("p", { class: "aside-note" }, "No answer was recorded."),
      call.told ? null : make("p", { class: "aside-note inexact" }, inexact(call)),
      ...call.also.map(inner),
      call.filter ? fold("record", [make("b", {}, "Filter")], textNode(call.filter, true)) : null,
      call.settings ? fold("record", [make("b", {}, "Settings")], textNode(call.settings, true)) : null,
    ].filter(Boolean),
  );
};

const eventNode = (entry) =>
  make(
    "li",
    { class: "entry event", id: `e-${entry.id}`, tabindex: "-1" },
    entryHead(entry, plain(entry.type), make("span", { class: "chip" }, "Not told")),
    fold(
      "record",
      [make("b", {}, "Payload"), hint(beginning(entry.payload, 100))],
      textNode(entry.payload, true),
    ),
  );

const untilOf = new Map(views.map((view) => [view.version, view.until]));
const calls = new Map();
const replies = new Map();
const byEventId = new Map();
const byVersion = new Map();
const list = byId("log");
let carriedLight = 0;

const nodeOf = (entry) => {
  if (entry.role) return messageNode(entry);
  if (entry.boundary) return boundaryNode(entry);
  return entry.call ? callNode(entry) : entry.reply ? replyNode(entry) : eventNode(entry);
};

// Lists of few entries each: the browser draws a list when it comes into view, and passes over the others
// whatever changes in them.
const CHUNK = 25;
const chunksOf = (nodes) => {
  const chunks = [];
  for (let at = 0; at < nodes.length; at += CHUNK) {
    const held = nodes.slice(at, at + CHUNK);
    const chunk = make("ol", { class: "entries" }, ...held);
    chunk.style.containIntrinsicBlockSize = `auto ${held.length * 7}rem`;
    chunks.push(chunk);
  }
  return chunks;
};

const lostNode = (gap) =>
  make("li", { class: "entry lost" }, make("h3", {}, gap.what));

// What the log lost stands where it stood.
const withLost = () => {
  const nodes = [];
  let at = 0;
  for (const entry of entries.filter(({ node }) => node)) {
    while (!entry.carried && at < data.lost.length && data.lost[at].v < entry.v)
      nodes.push(lostNode(data.lost[at++]));
    nodes.push(entry.node);
  }
  return [...nodes, ...data.lost.slice(at).map(lostNode)];
};

const fillLog = () => list.replaceChildren(...chunksOf(withLost()));

const build = () => {
  for (const entry of entries) {
    if (entry.role && !entry.parts) {
      carriedLight += 1;
      continue;
    }
    for (const part of entry.parts || [])
      if (part.is === "call" && part.id) calls.set(part.id, { entry, name: part.name });
    if (entry.reply) replies.set(`${entry.reply.call}/${entry.reply.attempt}`, entry.reply);
    entry.node = nodeOf(entry);
    byEventId.set(entry.id, entry);
    byVersion.set(entry.v, entry);
  }
  fillLog();
};

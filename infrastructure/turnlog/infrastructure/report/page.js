"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const { entries, views } = data;
  const messages = entries.filter((entry) => entry.role);
  const { first, last } = data.window;
  const head = data.session.head;
  const branch = data.session.branch;

  const KINDS = {
    later: "Not yet",
    covered: "Covered",
    pinned: "Pinned",
    summary: "Summary",
    preserved: "Preserved",
    since: "In view",
    replaced: "Replaced",
    elsewhere: "Other branch",
    omitted: "Left out",
  };
  const GROUPS = {
    pinned: ["Pinned", "kept in front by the newest compaction"],
    summary: ["Summary", "stands for what was covered"],
    preserved: ["Preserved", "kept word for word"],
    since: ["Since then", "said after the newest compaction"],
  };
  const ROLES = { system: "System", user: "User", assistant: "Assistant", tool: "Tool" };
  const number = new Intl.NumberFormat("en");
  const count = (n, what) => `${number.format(n)} ${what}${n === 1 ? "" : "s"}`;

  // --- nodes, built of text only

  const make = (name, attributes, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === true) node.setAttribute(key, "");
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
    return node;
  };

  // What steers or hides text: controls, direction marks, invisible characters, halves of pairs.
  const HIDDEN =
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}\ud800-\udfff]/u;
  const PIECES = new RegExp(`(${HIDDEN.source})|(https?://[!-~]+)`, "giu");
  const NAMES = {
    0x00ad: "soft hyphen", 0x061c: "Arabic letter mark", 0x200b: "zero width space",
    0x200e: "left-to-right mark", 0x200f: "right-to-left mark", 0x2028: "line separator",
    0x2029: "paragraph separator", 0x202a: "left-to-right embedding", 0x202b: "right-to-left embedding",
    0x202c: "end of direction", 0x202d: "left-to-right override", 0x202e: "right-to-left override",
    0x2060: "word joiner", 0x2066: "left-to-right isolate", 0x2067: "right-to-left isolate",
    0x2068: "first strong isolate", 0x2069: "end of isolate", 0xfeff: "byte order mark",
  };

  const CONTROLS = [
    "NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "TAB", "LF", "VT", "FF", "CR", "SO", "SI",
    "DLE", "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS", "US",
  ];

  const mark = (character) => {
    const code = character.codePointAt(0);
    const hex = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
    const shown = CONTROLS[code] || (code === 0x7f ? "DEL" : hex);
    const name = NAMES[code] || (code < 0xa0 ? "control character" : code >= 0xd800 && code < 0xe000 ? "half of a pair" : "invisible character");
    return make("span", { class: "mark", title: `${hex}, ${name}` }, shown);
  };

  const isWebAddress = (text) => {
    try {
      const { protocol, hostname } = new URL(text);
      return (protocol === "http:" || protocol === "https:") && hostname !== "";
    } catch {
      return false;
    }
  };

  const link = (address) =>
    make("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow", dir: "ltr" }, address);

  // An address ends before the punctuation of the sentence around it, and before what quotes it.
  const addressIn = (text) => {
    let address = text.split(/["'<>`|\\^{}]/u)[0].replace(/[.,;:!?*_]+$/u, "");
    for (const [open, close] of ["()", "[]"]) {
      while (address.endsWith(close) && address.split(close).length > address.split(open).length) {
        address = address.slice(0, -1).replace(/[.,;:!?*_]+$/u, "");
      }
    }
    return isWebAddress(address) ? address : "";
  };

  // The text as nodes: marks for what hides, links for web addresses, all else as it is.
  const shown = (text) => {
    const clean = text.replaceAll("\r\n", "\n");
    const nodes = [];
    let done = 0;
    PIECES.lastIndex = 0;
    for (let match = PIECES.exec(clean); match; match = PIECES.exec(clean)) {
      const address = match[2] ? addressIn(match[2]) : "";
      if (match[2] && !address) continue;
      if (match.index > done) nodes.push(clean.slice(done, match.index));
      nodes.push(address ? link(address) : mark(match[1]));
      done = match.index + (address || match[1]).length;
      PIECES.lastIndex = done;
    }
    if (done < clean.length) nodes.push(clean.slice(done));
    return nodes;
  };

  const plain = (text) => {
    const nodes = shown(text).map((node) => (typeof node === "string" ? node : node.textContent));
    return nodes.join("");
  };

  const beginning = (text, length) => {
    const line = text.slice(0, length * 3).replace(/\s+/gu, " ").trim();
    return plain(line.length > length ? `${line.slice(0, length).trimEnd()}…` : line);
  };

  const size = (bytes) =>
    bytes === undefined ? "" : bytes < 1024 ? count(bytes, "byte") : bytes < 1048576 ? `${Math.round(bytes / 1024)} KiB` : `${(bytes / 1048576).toFixed(1)} MiB`;

  // --- parts of messages

  const textNode = (text, mono) => make("div", { class: mono ? "text mono" : "text", dir: "auto" }, ...shown(text));

  const fold = (className, summary, ...children) =>
    make("details", { class: `fold ${className}` }, make("summary", {}, ...summary), ...children);

  const hint = (text) => make("span", { class: "hint", dir: "auto" }, text);

  const LONG = 1600;

  const partText = (part, entry) => {
    if (entry.role === "system" && part.text.length > 400) {
      return fold("instructions", [make("b", {}, "Instructions"), hint(beginning(part.text, 120))], textNode(part.text));
    }
    if (part.text.length > LONG * 3) {
      return fold("long", [make("b", {}, `${number.format(part.text.length)} characters`), hint(beginning(part.text, 120))], textNode(part.text));
    }
    return textNode(part.text);
  };

  const partReasoning = (part) =>
    part.hidden
      ? make("p", { class: "aside-note" }, "Thought, kept by the provider in encrypted form")
      : fold("reasoning", [make("b", {}, "Thought"), hint(beginning(part.text, 120))], textNode(part.text));

  const partCall = (part) =>
    fold(
      "call",
      [make("span", { class: "what" }, "Call"), make("b", { dir: "auto" }, plain(part.name)), hint(beginning(part.text, 100)), part.awaiting ? make("span", { class: "badge" }, "awaiting its result") : null].filter(Boolean),
      textNode(part.text || "no arguments", true),
      part.id ? make("p", { class: "aside-note" }, "id ", make("code", { dir: "auto" }, plain(part.id))) : null,
    );

  const partResult = (part, entry) => {
    const text = part.parts.map((one) => one.text || one.what || "").join("\n");
    const name = part.name || calls.get(part.id)?.name || part.id || "";
    return fold(
      part.error ? "result failed" : "result",
      [
        make("span", { class: "what" }, part.error ? "Error" : "Result"),
        make("b", { dir: "auto" }, plain(name)),
        hint(beginning(text, 100)),
        part.provisional ? make("span", { class: "badge" }, "provisional") : null,
      ].filter(Boolean),
      ...part.parts.map((one) => (one.is === "text" ? textNode(one.text || "nothing", true) : partNode(one, entry))),
      part.id && calls.has(part.id)
        ? make("p", { class: "aside-note" }, "Answers the call in ", make("a", { href: fragment(calls.get(part.id).entry) }, `v${calls.get(part.id).entry.v}`))
        : null,
    );
  };

  const partNode = (part, entry) => {
    switch (part.is) {
      case "text": return partText(part, entry);
      case "reasoning": return partReasoning(part);
      case "call": return partCall(part);
      case "result": return partResult(part, entry);
      case "image": return make("img", { src: part.src, alt: `Image in the message, ${part.what}, ${size(part.size)}`, loading: "lazy" });
      case "media": return make("p", { class: "aside-note" }, plain([part.what, size(part.size), part.why].filter(Boolean).join(", ")));
      case "address": return make("p", { class: "aside-note" }, `${plain(part.what)}: `, ...(part.link && isWebAddress(part.uri) ? [link(part.uri)] : [make("span", { dir: "auto" }, plain(part.uri))]));
      default: return fold("data", [make("b", { dir: "auto" }, plain(part.name)), hint(beginning(part.text, 100))], textNode(part.text, true));
    }
  };

  // --- entries

  const fragment = (entry) => `#e-${encodeURIComponent(entry.id)}`;

  const timeNode = (entry) => {
    const title = entry.recorded ? `said ${entry.said}, recorded ${entry.recorded}` : entry.said;
    return make("time", { datetime: entry.said, title }, `${entry.said.slice(0, 10)} ${entry.said.slice(11, 16)}`);
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
      make("a", { class: "place", href: fragment(entry), title: `Link to this entry, version ${entry.v}` }, `v${entry.v}`),
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
      { class: `entry message ${entry.role}${entry.synthetic ? " synthetic" : ""}`, id: `e-${entry.id}`, tabindex: "-1" },
      entryHead(entry, entry.synthetic ? `${ROLES[entry.role]}, written by a compaction` : ROLES[entry.role], entry.chip),
      make("div", { class: "body" }, ...body),
      entry.about ? fold("about", [make("b", {}, "Context and metadata")], textNode(entry.about, true)) : null,
    );
  };

  const redactedNode = (redaction) =>
    make("p", { class: "redacted" }, make("b", {}, "Redacted"), ...[redaction.reason, redaction.by && `by ${redaction.by}`, redaction.at].filter(Boolean).map((text) => make("span", { dir: "auto" }, plain(text))));

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
      strategy || trigger ? make("p", { class: "aside-note", dir: "auto" }, plain([strategy, trigger].filter(Boolean).join(", when "))) : null,
      make("div", { class: "around" }, button(Math.max(first, entry.v - 1), "Before"), button(until, "After")),
    );
  };

  const callNode = (entry) => {
    const { model, bytes, attempt, view } = entry.call;
    const button = make("button", { type: "button" }, "What it was told");
    button.addEventListener("click", () => go(entry.v, { tell: true }));
    return make(
      "li",
      { class: "entry call-entry", id: `e-${entry.id}`, tabindex: "-1" },
      entryHead(entry, attempt > 1 ? `Call, attempt ${number.format(attempt)}` : "Call", null),
      make("p", { class: "did", dir: "auto" }, [plain(model || "a model"), `view of version ${number.format(view)}`, size(bytes)].filter(Boolean).join(", ")),
      make("div", { class: "around" }, button),
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

  const showCall = (entry) => {
    const place = byId("call");
    if (!entry) return place.replaceChildren();
    const { call } = entry;
    const reply = replies.get(`${call.call}/${call.attempt}`);
    const facts = [["Model", call.model], ["Body", size(call.bytes)], ["Renderer", call.renderer], ["Tools", call.tools?.join(", ")]].filter(([, value]) => value);
    const inner = (one) => {
      const of = one.place === undefined ? "" : `, in place of v${messages[viewAt(call.view).told[one.place]]?.v ?? "?"}`;
      return fold("record", [make("b", {}, one.what + of)], ...one.parts.map((part) => partNode(part, {})));
    };
    return place.replaceChildren(
      ...[
        make("h2", {}, "Call"),
        make("dl", { class: "call-facts" }, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", { dir: "auto" }, plain(String(value)))])),
        reply ? make("p", { class: "aside-note", dir: "auto" }, plain(figuresOf(reply).join(", "))) : make("p", { class: "aside-note" }, "No answer was recorded."),
        call.filter && !call.told ? make("p", { class: "aside-note" }, "A filter left some of the view out; which messages, `turnlog audit told` says.") : null,
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
      fold("record", [make("b", {}, "Payload"), hint(beginning(entry.payload, 100))], textNode(entry.payload, true)),
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

  const fillLog = () => list.replaceChildren(...chunksOf(entries.map((entry) => entry.node).filter(Boolean)));

  const build = () => {
    for (const entry of entries) {
      if (entry.role && !entry.parts) {
        carriedLight += 1;
        continue;
      }
      for (const part of entry.parts || []) if (part.is === "call" && part.id) calls.set(part.id, { entry, name: part.name });
      if (entry.reply) replies.set(`${entry.reply.call}/${entry.reply.attempt}`, entry.reply);
      entry.node = nodeOf(entry);
      byEventId.set(entry.id, entry);
      byVersion.set(entry.v, entry);
    }
    fillLog();
  };

  // --- the view at a version

  const isAbove = (above, own) => above === undefined || above === own || (own !== null && own.startsWith(`${above}.`));

  const placeAfter = (version) => {
    let low = 0;
    let high = messages.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (messages[middle].v <= version) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  const newestView = (version) => {
    let found = null;
    for (let low = 0, high = views.length; low < high; ) {
      const middle = (low + high) >> 1;
      if (views[middle].version <= version) [found, low] = [views[middle], middle + 1];
      else high = middle;
    }
    return found;
  };

  // Whom the model was told at a version, in order, each with its group, and what that cost.
  const viewAt = (version) => {
    const until = placeAfter(version);
    const made = newestView(version);
    const kinds = new Map();
    const order = [];
    const put = (place, kind) => {
      if (place >= until || kinds.has(place)) return;
      kinds.set(place, kind);
      order.push(place);
    };
    for (const kind of ["pinned", "summary", "preserved"]) {
      for (const [from, to] of made ? made[kind] : []) for (let place = from; place <= to; place += 1) put(place, kind);
    }
    for (let place = made ? placeAfter(made.version) : 0; place < until; place += 1) put(place, "since");
    const latest = new Map();
    const told = [];
    for (const place of order) {
      const entry = messages[place];
      if (!isAbove(entry.branch, branch)) kinds.set(place, "elsewhere");
      else {
        told.push(place);
        if (entry.role === "system" && !entry.synthetic) {
          if (latest.has(entry.branch)) kinds.set(latest.get(entry.branch), "replaced");
          latest.set(entry.branch, place);
        }
      }
    }
    const groups = {};
    let tokens = 0;
    let sent = 0;
    for (const place of told) {
      const kind = kinds.get(place);
      if (kind === "replaced") continue;
      const group = (groups[kind] ||= { places: [], tokens: 0 });
      group.places.push(place);
      group.tokens += messages[place].tokens;
      tokens += messages[place].tokens;
      sent += 1;
    }
    return { version, until, kinds, groups, told, tokens, sent };
  };

  // What a call was told: the view that was rendered, without what the call left out.
  const viewOfCall = (entry) => {
    const { view: version, told } = entry.call;
    const view = viewAt(version);
    view.version = entry.v;
    if (!told) return view;
    const sent = new Set();
    for (const [from, to] of told) for (let at = from; at <= to; at += 1) sent.add(view.told[at]);
    for (const [kind, group] of Object.entries(view.groups)) {
      for (const place of group.places) if (!sent.has(place)) view.kinds.set(place, "omitted");
      group.places = group.places.filter((place) => sent.has(place));
      group.tokens = group.places.reduce((sum, place) => sum + messages[place].tokens, 0);
      if (!group.places.length) delete view.groups[kind];
    }
    const groups = Object.values(view.groups);
    view.sent = groups.reduce((sum, group) => sum + group.places.length, 0);
    view.tokens = groups.reduce((sum, group) => sum + group.tokens, 0);
    return view;
  };

  const callAt = (version) => {
    const entry = byVersion.get(version);
    return entry?.call && (entry.branch ?? null) === branch && entry.call.view >= first ? entry : null;
  };

  // --- showing a moment

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
    const text = part.is === "result" ? `${part.name || calls.get(part.id)?.name || ""} answered` : part.is === "call" ? `calls ${part.name}` : part.text || "";
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

  const figure = (n, what) => make("span", { class: "group-count" }, number.format(n), make("span", { class: "hidden-label" }, ` ${what}${n === 1 ? "" : "s"}`));

  const showTotals = (view) => {
    byId("print-moment").textContent = `At version ${number.format(view.version)} of ${number.format(head)}`;
    byId("told-tokens").textContent = `≈ ${number.format(view.tokens)} tokens`;
    byId("told-count").textContent = `in ${count(view.sent, "message")}`;
    const rows = [make("li", { class: "group-head", "aria-hidden": "true" }, ...["messages", "tokens"].map((what) => make("span", { class: "group-count" }, what)))];
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
          make("span", { class: "group-name", title: why }, kind === "since" && !newestView(view.version) ? "Said so far" : name),
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
    if (made) byId("inside").textContent = `Inside one write, which is complete at version ${number.format(made.until)}: no model was told this.`;
    byId("share").replaceChildren(...shares);
    byId("groups").replaceChildren(...rows);
  };

  const toldSections = Object.fromEntries(
    Object.entries(GROUPS).map(([kind, [name, why]]) => {
      const title = make("h2", { id: `told-${kind}` }, name);
      const about = make("p", { class: "aside-note" });
      const nodes = make("div", {});
      const section = make("section", { class: `told-group ${kind}`, "aria-labelledby": `told-${kind}` }, title, about, nodes);
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
      make("a", { href: `${encodeURIComponent(part.name)}#v${version}` }, `versions ${number.format(part.first)}–${number.format(part.last)}`),
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

  // --- going somewhere

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
    go(Math.round(Math.min(1, Math.max(0, (event.clientX - left) / width)) * head), { tell: true, scroll: false });
  });

  const boundaryEnds = views.filter((view) => view.version >= first).map((view) => view.until);
  const jump = (id, versions, forwards) => {
    const button = byId(id);
    button.addEventListener("click", () => {
      const found = forwards ? versions.find((one) => one > now.version) : versions.findLast((one) => one < now.version);
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
      const button = make("button", { type: "button" }, make("span", { class: "version" }, `v${number.format(entry.v)}`), make("span", {}, `${number.format(entry.boundary.covered)} left`), make("span", { class: "saved" }, `−${number.format(entry.boundary.saved)} tokens`));
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
      status.textContent = now.mode === "told" ? `Only what was told at version ${number.format(now.version)}.` : "The whole log.";
    });
  }

  const isShown = (entry) => entry.node && (now.mode === "log" || TOLD.has(entry.kind));

  const open = (entry) => {
    if (now.mode === "told" && !isShown(entry)) {
      document.querySelector("input[name=mode][value=log]").click();
    }
    scrollTo(entry.node);
    entry.node.focus({ preventScroll: true });
  };

  const follow = () => {
    const hash = location.hash;
    const version = /^#v(\d{1,15})$/u.exec(hash);
    if (version) {
      const wanted = Math.min(Number(version[1]), head);
      slider.value = wanted;
      show(wanted);
      if (now.entry && now.mode === "log") open(now.entry);
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

  // --- search

  const query = byId("query");
  const hits = { of: "", entries: [], at: -1 };
  const canHighlight = "highlights" in CSS;

  const textOf = (part) => [part.text, part.name, part.what, part.uri, ...(part.parts || []).map(textOf)].filter(Boolean).join("\n");
  const haystack = (entry) =>
    (entry.haystack ??= entry.role ? (entry.redacted ? "" : entry.parts.map(textOf).join("\n")) : entry.boundary ? "" : `${entry.type}\n${entry.payload}`);

  const ranges = (entry, pattern, room) => {
    const found = [];
    const walker = document.createTreeWalker(entry.node.querySelector(".body") || entry.node, NodeFilter.SHOW_TEXT);
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
    byId("hits").textContent = !pattern ? "" : !total ? "none" : `${hits.at + 1 || "–"} of ${number.format(total)}`;
    for (const id of ["previous-hit", "next-hit"]) byId(id).disabled = !total;
  };

  const patternOf = () => {
    const text = query.value.trim();
    return text ? new RegExp(text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"), "giu") : null;
  };

  const search = () => {
    const pattern = patternOf();
    hits.of = query.value;
    hits.entries = pattern ? entries.filter((entry) => isShown(entry) && haystack(entry).search(pattern) >= 0) : [];
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

  // --- theme and print

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

  // --- begin

  byId("told").append(...Object.values(toldSections).map(({ section }) => section));
  build();
  buildBoundaries();
  jumpToCalls();
  if (carriedLight) {
    list.before(make("p", { class: "notice" }, `${count(carriedLight, "message")} that the model was told here are shown in earlier parts.`));
  }
  document.body.dataset.mode = now.mode;
  const begin = Math.min(last, head);
  slider.value = begin;
  show(begin);
  follow();
  document.documentElement.dataset.ready = "";
})();

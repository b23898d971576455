// The view at a version.

const isAbove = (above, own) =>
  above === undefined || above === own || (own !== null && own.startsWith(`${above}.`));

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
  for (let low = 0, high = views.length; low < high;) {
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
    for (const [from, to] of made ? made[kind] : [])
      for (let place = from; place <= to; place += 1) put(place, kind);
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
  return entry?.call && isOfBranch(entry) && entry.call.view >= first ? entry : null;
};

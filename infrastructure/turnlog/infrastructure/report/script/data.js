// What the page was made of, and the words for it.

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

// Nodes, built of text only: marks for what hides, links for web addresses.

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
  0x00ad: "soft hyphen",
  0x061c: "Arabic letter mark",
  0x200b: "zero width space",
  0x200e: "left-to-right mark",
  0x200f: "right-to-left mark",
  0x2028: "line separator",
  0x2029: "paragraph separator",
  0x202a: "left-to-right embedding",
  0x202b: "right-to-left embedding",
  0x202c: "end of direction",
  0x202d: "left-to-right override",
  0x202e: "right-to-left override",
  0x2060: "word joiner",
  0x2066: "left-to-right isolate",
  0x2067: "right-to-left isolate",
  0x2068: "first strong isolate",
  0x2069: "end of isolate",
  0xfeff: "byte order mark",
};

const CONTROLS = [
  "NUL",
  "SOH",
  "STX",
  "ETX",
  "EOT",
  "ENQ",
  "ACK",
  "BEL",
  "BS",
  "TAB",
  "LF",
  "VT",
  "FF",
  "CR",
  "SO",
  "SI",
  "DLE",
  "DC1",
  "DC2",
  "DC3",
  "DC4",
  "NAK",
  "SYN",
  "ETB",
  "CAN",
  "EM",
  "SUB",
  "ESC",
  "FS",
  "GS",
  "RS",
  "US",
];

const mark = (character) => {
  const code = character.codePointAt(0);
  const hex = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  const shown = CONTROLS[code] || (code === 0x7f ? "DEL" : hex);
  const name =
    NAMES[code] ||
    (code < 0xa0
      ? "control character"
      : code >= 0xd800 && code < 0xe000
        ? "half of a pair"
        : "invisible character");
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
  const line = text
    .slice(0, length * 3)
    .replace(/\s+/gu, " ")
    .trim();
  return plain(line.length > length ? `${line.slice(0, length).trimEnd()}…` : line);
};

const size = (bytes) =>
  bytes === undefined
    ? ""
    : bytes < 1024
      ? count(bytes, "byte")
      : bytes < 1048576
        ? `${Math.round(bytes / 1024)} KiB`
        : `${(bytes / 1048576).toFixed(1)} MiB`;

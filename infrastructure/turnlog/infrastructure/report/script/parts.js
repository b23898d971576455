// The parts of messages.

const textNode = (text, mono) =>
  make("div", { class: mono ? "text mono" : "text", dir: "auto" }, ...shown(text));

const fold = (className, summary, ...children) =>
  make("details", { class: `fold ${className}` }, make("summary", {}, ...summary), ...children);

const hint = (text) => make("span", { class: "hint", dir: "auto" }, text);

const LONG = 5000;

const partText = (part, entry) => {
  if (entry.role === "system" && part.text.length > 400) {
    return fold(
      "instructions",
      [make("b", {}, "Instructions"), hint(beginning(part.text, 120))],
      textNode(part.text),
    );
  }
  if (part.text.length > LONG) {
    return fold(
      "long",
      [make("b", {}, `${number.format(part.text.length)} characters`), hint(beginning(part.text, 120))],
      textNode(part.text),
    );
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
    [
      make("span", { class: "what" }, "Call"),
      make("b", { dir: "auto" }, plain(part.name)),
      hint(beginning(part.text, 100)),
      part.awaiting ? make("span", { class: "badge" }, "awaiting its result") : null,
    ].filter(Boolean),
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
    ...part.parts.map((one) =>
      one.is === "text" ? textNode(one.text || "nothing", true) : partNode(one, entry),
    ),
    part.id && calls.has(part.id)
      ? make(
          "p",
          { class: "aside-note" },
          "Answers the call in ",
          make("a", { href: fragment(calls.get(part.id).entry) }, `v${calls.get(part.id).entry.v}`),
        )
      : null,
  );
};

const partNode = (part, entry) => {
  switch (part.is) {
    case "text":
      return partText(part, entry);
    case "reasoning":
      return partReasoning(part);
    case "call":
      return partCall(part);
    case "result":
      return partResult(part, entry);
    case "image":
      return make("img", {
        src: part.src,
        alt: `Image in the message, ${part.what}, ${size(part.size)}`,
        loading: "lazy",
      });
    case "media":
      return make(
        "p",
        { class: "aside-note" },
        plain([part.what, size(part.size), part.why].filter(Boolean).join(", ")),
      );
    case "address":
      return make(
        "p",
        { class: "aside-note" },
        `${plain(part.what)}: `,
        ...(part.link && isWebAddress(part.uri)
          ? [link(part.uri)]
          : [make("span", { dir: "auto" }, plain(part.uri))]),
      );
    default:
      return fold(
        "data",
        [make("b", { dir: "auto" }, plain(part.name)), hint(beginning(part.text, 100))],
        textNode(part.text, true),
      );
  }
};

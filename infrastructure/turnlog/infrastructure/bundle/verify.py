"""Checks an evidence bundle of turnlog. Needs Python 3.9 or later and nothing else:

    python verify.py bundle.zip                 status 0: whole, 1: something is wrong, 2: no bundle
    python verify.py bundle.zip --key HEX       ... and its heads are signed by this Ed25519 key

A bundle is a zip of stored files, which nothing here unpacks to disk:

    manifest.json     what the bundle holds: versions, head, counts, the view, SHA-256 of each file
    events.jsonl      the session: one stored event a line, in the order of their versions
    boundaries.jsonl  for each compaction what it put into the view and what left it
    prompts.jsonl     for each recorded request to a model the body that was sent
    heads.json        chain values with a signature, where the bundle has them
    README.txt, verify.py

Every stored event has a chain value (`link` below): SHA-256 over the one in front of it and over all that
the event holds, its content by a salted hash, the commitment. So nobody can change, remove, insert or
reorder events without making all later chain values anew. A content that was redacted is gone with its
salt: its commitment is there, a marker stands in its place, and a later event says so. Who makes everything
anew, this file included, is found only by a head that was kept elsewhere, or signed. So use a copy of this
file that you trust.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

Event = dict[str, Any]
Point = tuple[int, int, int, int]

FORMAT = "turnlog.bundle/1"
MANIFEST = "manifest.json"
EVENTS = "events.jsonl"
BOUNDARIES = "boundaries.jsonl"
PROMPTS = "prompts.jsonl"
HEADS = "heads.json"
README = "README.txt"
REQUIRED = {MANIFEST, EVENTS, BOUNDARIES, PROMPTS, README, "verify.py"}

# The topics of events, with the names of their fields. Each may have those of ALL too.
TOPIC = "turnlog.domain.events:"
ALL = "anchor context nonce state"
FIELDS = {
    "SessionOpened": "session_id namespace expires_at idle",
    "MessageAppended": "event_id role branch synthetic occurred_at opens closes hides",
    "EventAppended": "event_id type branch occurred_at",
    "Compacted": "event_id pinned summary preserved branch covered_count tokens_saved strategy trigger "
    "occurred_at",
    "CallAbandoned": "event_id call_event_id call_version call_id occurred_at",
    "MetadataUpdated": "",
    "ExpiryMoved": "expires_at",
    "HoldPlaced": "reason by",
    "HoldReleased": "placed_at by",
    "ContentRedacted": "event_id redacted_id redacted_version commitment_kept reason by form through quoted",
    "TurnMarked": "turn_id branch until",
}
INTEGERS = {"anchor", "idle", "synthetic", "covered_count", "tokens_saved", "call_version", "placed_at"} | {
    "redacted_version",
    "through",
}
LISTS = {
    "opens",
    "closes",
    "hides",
    "pinned",
    "summary",
    "preserved",
    "quoted",
}  # of texts; all other fields are texts
NEED_CONTENT = {"MessageAppended", "EventAppended", "MetadataUpdated"}
HAVE_CONTENT = NEED_CONTENT | {"SessionOpened", "ContentRedacted"}
NAMESPACE = uuid.UUID("5b1f3f0e-6c0f-4a57-9d3e-2f6f4b6f7a11")


class NoBundleError(Exception):
    """The bytes are no bundle, or not all of one."""


class Report:
    """What was found wrong, what is worth knowing, and what the bundle says of itself."""

    def __init__(self) -> None:
        self.findings: list[str] = []
        self.notes: list[str] = []
        self.manifest: dict[str, Any] = {}
        self.lacks_signature = False

    def found(self, where: str, what: str) -> None:
        """One thing that is wrong, as plain ASCII: a forged name may hold anything."""
        self.findings.append(f"{where}: {what}".encode("unicode_escape").decode())


def check(data: bytes, key: str | None = None) -> Report:
    """The report about the bytes of a bundle. Raises NoBundleError."""
    report = Report()
    files = read_zip(data)
    for step in (check_manifest, check_session, check_heads):
        try:
            step(files, report, key)
        except Exception as error:  # a forged file can hold anything
            report.found("bundle", f"malformed ({type(error).__name__} in {step.__name__})")
    return report


# --- the zip


def read_zip(data: bytes) -> dict[str, bytes]:
    """The files of the bundle by name. The archive must be, byte by byte, the one that they make."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            names = [entry.filename for entry in entries]
            unknown = set(names) - REQUIRED - {HEADS}
            if unknown:
                raise NoBundleError(f"it holds files that no bundle has: {ascii(sorted(unknown))[:200]}")
            if len(set(names)) < len(names):
                raise NoBundleError("it holds a file twice")
            if any(entry.compress_type or entry.file_size > len(data) for entry in entries):
                raise NoBundleError(
                    "it holds a compressed file, and files of a bundle are stored as they are"
                )
            files = {entry.filename: archive.read(entry) for entry in entries}
    except NoBundleError:
        raise
    except Exception as error:
        raise NoBundleError(f"it is cut off, damaged, or no zip ({type(error).__name__})") from error
    if REQUIRED - set(files):
        raise NoBundleError("it lacks {}".format(", ".join(sorted(REQUIRED - set(files)))))
    if write_zip(files) != data:
        raise NoBundleError("the archive holds more than its files, or was damaged")
    return files


def write_zip(files: Mapping[str, bytes]) -> bytes:
    """The bytes of the archive: the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


# --- JSON in one form only, so that no byte can change unnoticed


def line_of(value: object) -> str:
    """A line of a file, without its end."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def manifest_text(manifest: Mapping[str, Any]) -> bytes:
    """The manifest as it is stored. Its digest is over the same text without the digest."""
    rest = {name: value for name, value in manifest.items() if name != "digest"}
    rest["digest"] = sha256(json.dumps(rest, sort_keys=True, indent=1).encode())
    return json.dumps(rest, sort_keys=True, indent=1).encode() + b"\n"


def records(files: Mapping[str, bytes], name: str, report: Report) -> list[Any]:
    """The values of a file's lines, None for one that is broken."""
    text = files[name]
    if text and not text.endswith(b"\n"):
        report.found(name, "its last line is cut off")
    found: list[Any] = []
    for number, line in enumerate(text.split(b"\n")[:-1], 1):
        value: Any = None
        try:
            value = json.loads(line)
            if line_of(value).encode() != line or not isinstance(value, dict):
                value = None
        except (ValueError, RecursionError):
            pass
        if value is None:
            report.found(f"{name} line {number}", "it is not as it was written")
        found.append(value)
    return found


def sha256(data: bytes) -> str:
    """The hash as lower-case hex."""
    return hashlib.sha256(data).hexdigest()


# --- the manifest


def check_manifest(files: Mapping[str, bytes], report: Report, _key: str | None) -> None:
    """The manifest is whole, and each file is the one that it names."""
    manifest = json.loads(files[MANIFEST])
    if manifest["format"] != FORMAT:
        report.found(
            MANIFEST, "its format is {}; this program knows {}".format(ascii(manifest["format"]), FORMAT)
        )
    report.manifest = manifest
    if manifest_text(manifest) != files[MANIFEST]:
        report.found(MANIFEST, "it is not as it was written")
    listed = manifest["files"]
    for name in sorted(set(files) | set(listed)):
        if name == MANIFEST and name not in listed:
            continue
        if name not in files or name not in listed:
            report.found(name, "it is listed and not there, or there and not listed")
        elif line_of(listed[name]) != line_of({"bytes": len(files[name]), "sha256": sha256(files[name])}):
            report.found(name, "it is not the file that the manifest names")


# --- the events


def link(previous: str, aggregate: str, event: Event, commitment: str) -> str:
    """The chain value that the event must have behind `previous`."""
    lines = ["turnlog/1", previous, aggregate, str(event["version"]), event["topic"], event["timestamp"]]
    for name, value in sorted(event["fields"].items()):
        if isinstance(value, list):
            value = json.dumps(value, separators=(",", ":"))
        lines.append(f"{name}={len(str(value))}:{value}")
    lines += [commitment, ""]
    return sha256("\n".join(lines).encode())


def check_session(files: Mapping[str, bytes], report: Report, _key: str | None) -> None:
    """The chain, the contents, and what boundaries, prompts and manifest say of them."""
    events = records(files, EVENTS, report)
    manifest = report.manifest
    first = events[0]["fields"]
    namespace = first.get("namespace", "")
    name = json.dumps([namespace, first["session_id"]], separators=(",", ":"))
    aggregate = uuid.uuid5(NAMESPACE, name).hex
    check_chain(events, aggregate, report)
    boundaries, view = fold(events, report)
    same(files, BOUNDARIES, [line_of(boundary) for boundary in boundaries], report)
    check_prompts(events, records(files, PROMPTS, report), report)
    says = {
        "session": first["session_id"],
        "namespace": namespace,
        "aggregate": aggregate,
        "events": len(events),
        "version": events[-1]["version"],
        "head": events[-1]["chain"],
        "boundaries": len(boundaries),
        "prompts": files[PROMPTS].count(b"\n"),
        "view": view,
    }
    for field, value in says.items():
        if line_of(manifest.get(field)) != line_of(value):
            report.found(MANIFEST, f"its {field} is not that of the events")
    if set(manifest) - set(says) != {"format", "turnlog", "files", "digest"}:
        report.found(MANIFEST, "its fields are not those of a manifest")


def check_chain(events: Sequence[Any], aggregate: str, report: Report) -> None:
    """Each event is well-formed, has its content, and follows on the one in front of it."""
    absent: dict[int, Event] = {}
    previous, time = "0" * 64, ""
    for version, event in enumerate(events):
        where = f"event {version}"
        try:
            problem = form_problem(event, version)
            commitment = event.get("commitment", "")
            if "salt" in event:
                commitment = sha256(("{}\n{}".format(event["salt"], event["content"])).encode())
            elif commitment:
                absent[version] = event
            if link(previous, aggregate, event, commitment) != event["chain"]:
                report.found(where, "its chain value does not follow from what it holds")
            elif problem:
                report.found(where, problem)
            elif event["timestamp"] < time:  # as texts: "+" comes in front of "."
                report.found(where, "it was recorded before the event in front of it")
            previous, time = event["chain"], event["timestamp"]
            if event["topic"] == TOPIC + "ContentRedacted":
                target = absent.get(event["fields"]["redacted_version"])
                if target and target["commitment"] == event["fields"]["commitment_kept"]:
                    del absent[target["version"]]
                    if not is_marker(target.get("content"), event):
                        report.found(
                            f"event {target['version']}", "its marker is not the one of its redaction"
                        )
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            report.found(where, "it is not as it was written")
            previous = str(event.get("chain")) if event else ""
    for version in absent:
        report.found(f"event {version}", "its content is not there, and no redaction says so")


def form_problem(event: Event, version: int) -> str | None:
    """What is wrong with the form of an event, None if nothing is."""
    kind = event["topic"][len(TOPIC) :]
    if event["topic"] != TOPIC + kind or kind not in FIELDS or (kind == "SessionOpened") != (version == 0):
        return "no such event belongs here"
    if event["version"] != version or type(event["version"]) is not int:
        return "its version is not its place"
    time = datetime.fromisoformat(event["timestamp"])
    if time.isoformat() != event["timestamp"] or time.utcoffset() != timedelta(0):
        return "its timestamp is not written in UTC"
    if set(event) - {"version", "topic", "timestamp", "fields", "chain", "content", "salt", "commitment"}:
        return "it holds more than an event does"
    for name, value in event["fields"].items():
        if name not in (FIELDS[kind] + " " + ALL).split():
            return "it has a field that its kind does not have"
        if not is_of(name, value):
            return f"its field {name} is not of its kind"
    if "salt" in event and ("content" not in event or "commitment" in event):
        return "content, salt and commitment do not go together"
    if "content" in event and "salt" not in event and "commitment" not in event:
        return "content, salt and commitment do not go together"
    has = "content" in event or "commitment" in event
    if (has and kind not in HAVE_CONTENT) or (not has and kind in NEED_CONTENT):
        return "it lacks its content, or has one that its kind does not have"
    return None


def is_of(name: str, value: Any) -> bool:
    """Whether a field has a value of its kind."""
    if name in INTEGERS:
        return type(value) is int
    if name in LISTS:
        return type(value) is list and all(type(item) is str for item in cast("list[object]", value))
    return type(value) is str


def content_of(event: Event) -> Any:
    """The value that a content tells: JSON, or in rare cases `~` and the base64 of JSON."""
    text = event["content"]
    if text.startswith("~"):
        text = base64.b64decode(text[1:]).decode("utf-8", "surrogatepass")
    return json.loads(text)


def has_type(event: Event, name: str) -> bool:
    """Whether it is an event of this type that turnlog itself writes."""
    return bool(event["topic"] == TOPIC + "EventAppended" and event["fields"].get("type") == name)


def is_marker(content: Any, redaction: Event) -> bool:
    """Whether the content is what a redaction leaves: when, why and by whom, and the form of the message."""
    fields = redaction["fields"]
    told = {"at": redaction["timestamp"], "by": fields["by"], "reason": fields["reason"]}
    marker: dict[str, Any] = {"redacted": {**told, "version": redaction["version"]}}
    if "form" in fields:
        marker["form"] = content_of({"content": fields["form"]})
    forms = [
        json.dumps(marker, ensure_ascii=ascii_only, separators=(",", ":")) for ascii_only in (False, True)
    ]
    return content in forms


# --- the view


def fold(events: Sequence[Any], report: Report) -> tuple[list[dict[str, Any]], list[str]]:
    """What each boundary did, and the ids of the view at the end."""
    view: list[str] = []
    named: set[str] = set()
    known: set[str] = set()
    boundaries: list[dict[str, Any]] = []
    events = [event for event in events if event is not None]
    for place, event in enumerate(events):
        fields, where = event["fields"], "event {}".format(event["version"])
        entry_id = str(fields.get("event_id", ""))
        if entry_id and entry_id in known:
            report.found(where, "its id is that of an earlier event")
        known.add(entry_id)
        if event["topic"] == TOPIC + "MessageAppended" and entry_id not in named:
            view.append(entry_id)
        elif event["topic"] == TOPIC + "Compacted":
            kept = fields.get("pinned", []) + fields.get("preserved", [])
            summary = fields.get("summary", [])
            behind = events[place + 1 : place + 1 + len(summary)]
            if [is_summary(one) and one["fields"]["event_id"] for one in behind] != summary:
                report.found(where, "behind the boundary its summary does not follow")
            if not set(kept) <= set(view):
                report.found(where, "the boundary names what is no message of the view")
            after = fields.get("pinned", []) + summary + fields.get("preserved", [])
            if len(set(after)) < len(after):
                report.found(where, "the boundary names a message twice")
            boundaries.append(boundary_line(event, view, after))
            view, named = list(after), set(after)
    return boundaries, view


def is_summary(event: Event) -> bool:
    """Whether it is a message that a compaction wrote."""
    return event["topic"] == TOPIC + "MessageAppended" and bool(event["fields"].get("synthetic"))


def boundary_line(event: Event, before: Sequence[str], after: Sequence[str]) -> dict[str, Any]:
    """What is told of a boundary: the view behind it by ids, and the ids of what left."""
    names = (
        "branch",
        "strategy",
        "trigger",
        "covered_count",
        "tokens_saved",
        "pinned",
        "summary",
        "preserved",
    )
    told = {name: event["fields"][name] for name in names if name in event["fields"]}
    kept = set(after)
    covered = [entry_id for entry_id in before if entry_id not in kept]
    told.update(id=event["fields"]["event_id"], version=event["version"], time=event["timestamp"])
    told.update(view=after, covered=covered)
    return told


def same(files: Mapping[str, bytes], name: str, lines: Sequence[str], report: Report) -> None:
    """The file has these lines and nothing else."""
    given = files[name].decode("utf-8", "replace").split("\n")
    for number, (line, must) in enumerate(zip(given, [*lines, ""]), 1):
        if line != must:
            report.found(f"{name} line {number}", "it is not what the events say")
    if len(given) != len(lines) + 1:
        report.found(name, f"it has {len(given) - 1} lines and must have {len(lines)}")


# --- prompts


def check_prompts(events: Sequence[Any], prompts: Sequence[Any], report: Report) -> None:
    """Each recorded request has its line, and each body the hash that the log holds."""
    recorded = [event for event in events if event is not None and has_type(event, "PROMPT_RENDERED")]
    if [prompt and prompt.get("id") for prompt in prompts] != [
        event["fields"]["event_id"] for event in recorded
    ]:
        report.found(PROMPTS, "its lines are not the recorded requests")
        return
    missing = 0
    for prompt, event in zip(prompts, recorded):
        where = "prompt of event {}".format(event["version"])
        must = {"version": event["version"], "id": event["fields"]["event_id"], "time": event["timestamp"]}
        payload: dict[str, Any] = content_of(event) if "salt" in event else {}
        for name in ("call", "attempt", "view", "model", "renderer", "form"):
            if name in payload:
                must[name] = payload[name]
        body = body_of(prompt)
        says = {name: value for name, value in prompt.items() if name not in ("text", "base64", "missing")}
        if line_of(says) != line_of(must):
            report.found(where, "it is not what the event says")
        elif body is None:
            missing += 1
        elif sha256(payload["salt"].encode() + b"\n" + body) != payload["digest"]:
            report.found(where, "its body is not the one whose hash the event holds")
    if missing:
        report.notes.append(f"{missing} of {len(prompts)} requests have no body here; prompts.jsonl says why")


def body_of(prompt: Mapping[str, str]) -> bytes | None:
    """The bytes that were sent, None where the bundle does not have them."""
    if "text" in prompt:
        return prompt["text"].encode()
    return base64.b64decode(prompt["base64"]) if "base64" in prompt else None


# --- signed heads


def check_heads(files: Mapping[str, bytes], report: Report, key: str | None) -> None:
    """The heads name events of this session, and their signature is right."""
    if HEADS not in files:
        if key:
            report.lacks_signature = True
            report.found(HEADS, "the bundle is not signed: it has no heads that a key could have signed")
        return
    heads = json.loads(files[HEADS])
    signature = heads.pop("signature", None)
    events, aggregate = records(files, EVENTS, Report()), report.manifest["aggregate"]
    own = [head for head in heads["heads"] if head["aggregate"] == aggregate]
    for head in own:
        known = events[head["version"]] if 0 <= head["version"] < len(events) else None
        if known is None or known["chain"] != head["head"]:
            report.found(HEADS, "event {} is not the one that the head names".format(head["version"]))
    if not own:
        report.found(HEADS, "no head is one of this session")
    if signature is None:
        report.notes.append("the heads are not signed: they prove no more than the events do")
        if key:
            report.lacks_signature = True
            report.found(HEADS, "the bundle is not signed: its heads have no signature")
        return
    signed = json.dumps(heads, sort_keys=True, separators=(",", ":")).encode()
    if signature["algorithm"] != "Ed25519" or not verifies(signature["key"], signed, signature["value"]):
        report.found(HEADS, "the signature is not one of key {}".format(ascii(signature["key"])))
    elif key and signature["key"] != key.strip().lower():
        report.found(HEADS, "they are signed by another key, {}".format(signature["key"]))
    else:
        up_to = max((head["version"] for head in own), default=-1)
        report.notes.append("the events up to {} are signed by key {}".format(up_to, signature["key"]))
        if not key:
            report.notes.append("whose key that is nobody checked: give --key with the one you trust")


# --- Ed25519 verification after RFC 8032, section 5.1: slow, and needs no secrecy

P = 2**255 - 19  # the field
L = 2**252 + 27742317777372353535851937790883648493  # the order of the base point
D = -121665 * pow(121666, P - 2, P) % P


def is_key(text: str) -> bool:
    """Whether the text is a public key: 64 hex digits."""
    digits = text.strip().lower()
    return len(digits) == 64 and set(digits) <= set("0123456789abcdef")


def verifies(key: str, text: bytes, signature: str) -> bool:
    """Whether the signature (hex) is one of the public key (hex) under the text."""
    try:
        key_bytes, signed = bytes.fromhex(key), bytes.fromhex(signature)
    except (TypeError, ValueError):
        return False
    if len(key_bytes) != 32 or len(signed) != 64:
        return False
    public, s = decoded(key_bytes), int.from_bytes(signed[32:], "little")
    if public is None or s >= L:
        return False
    k = int.from_bytes(hashlib.sha512(signed[:32] + key_bytes + text).digest(), "little") % L
    x, y, z, t = public
    r = add(multiplied(s, BASE), multiplied(k, (-x % P, y, z, -t % P)))  # [S]B - [k]A must be R
    return encoded(r) == signed[:32]


def decoded(data: bytes) -> Point | None:
    """The point of 32 bytes in extended coordinates (x = X/Z, y = Y/Z, xy = T/Z), None if there is none."""
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return x, y, 1, x * y % P


def encoded(point: Point) -> bytes:
    """The 32 bytes of a point."""
    x, y, z, _ = point
    inverse = pow(z, P - 2, P)
    x, y = x * inverse % P, y * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def add(one: Point, other: Point) -> Point:
    """The sum of two points, which may be equal."""
    x1, y1, z1, t1 = one
    x2, y2, z2, t2 = other
    a, b = (y1 - x1) * (y2 - x2), (y1 + x1) * (y2 + x2)
    c, d = 2 * D * t1 * t2, 2 * z1 * z2
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def multiplied(times: int, point: Point) -> Point:
    """The point added to itself so many times."""
    result = (0, 1, 1, 0)
    while times:
        if times & 1:
            result = add(result, point)
        point, times = add(point, point), times >> 1
    return result


BASE = cast("Point", decoded((4 * pow(5, P - 2, P) % P).to_bytes(32, "little")))


# --- the program


def main(arguments: Sequence[str]) -> int:
    """Check the bundle that is named and say what was found; returns the exit status."""
    key = None
    if arguments and arguments[0] in ("-h", "--help"):
        print("usage: verify.py BUNDLE.zip [--key HEX]")
        print(__doc__)
        return 0
    if len(arguments) == 3 and arguments[1] == "--key":
        key = arguments[2]
    elif len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: verify.py BUNDLE.zip [--key HEX]", file=sys.stderr)
        return 2
    if key is not None and not is_key(key):
        print(f"{key!a} is no public key: that has 64 hex digits", file=sys.stderr)
        return 2
    try:
        report = check(Path(arguments[0]).read_bytes(), key)
    except (NoBundleError, OSError) as error:
        print(f"{arguments[0]!a}: {error}", file=sys.stderr)
        return 2
    for finding in report.findings:
        print(f"WRONG  {finding}")
    for note in report.notes:
        print(f"note   {note}")
    if report.findings:
        print(f"{len(report.findings)} found wrong: do not rely on this bundle.")
        return 1
    session, events = json.dumps(report.manifest["session"]), report.manifest["events"]
    print(f"Session {session}: {events} events, the newest has the chain value")
    print(report.manifest["head"])
    print("The log is whole: every event follows on the one in front of it, every file is the one listed.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

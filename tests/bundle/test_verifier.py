"""The stand-alone verifier finds whatever is changed in a bundle."""

from __future__ import annotations

import ast
import io
import json
import random
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import cast

import pytest
from tests.audit.renderers import RENDERERS
from tests.bundle.sessions import (
    SID,
    VERIFIER,
    events_of,
    files_of,
    filled,
    rechained,
    refreshed,
    run_verifier,
    with_event,
)

from turnlog.application.audit import SessionAudit
from turnlog.domain.events import STREAM_EVENTS, ContentEvent, EventErased, SessionDeleted, StreamEvent
from turnlog.infrastructure.bundle import export_bundle, verify
from turnlog.infrastructure.signing import Ed25519Signer, new_key_file

MUTATIONS = 300

Files = dict[str, bytes]


def _findings(files: Mapping[str, bytes]) -> list[str]:
    return verify.check(verify.write_zip(files)).findings


def _is_found(data: bytes) -> bool:
    try:
        return bool(verify.check(data).findings)
    except verify.NoBundleError:
        return True


def test_a_bundle_is_whole_for_the_verifier_alone(bundle: Path) -> None:
    run = run_verifier(bundle)
    assert (run.returncode, run.stderr) == (0, "")
    assert "The log is whole" in run.stdout


def test_a_changed_bundle_ends_the_verifier_with_status_1(bundle: Path, tmp_path: Path) -> None:
    forged = tmp_path / "forged.zip"
    files = with_event(files_of(bundle), 3, {"content": '{"parts":[]}'})
    forged.write_bytes(verify.write_zip(files))
    run = run_verifier(forged)
    assert run.returncode == 1
    assert "event 3: its chain value does not follow" in run.stdout


def test_what_is_no_bundle_ends_the_verifier_with_status_2(tmp_path: Path) -> None:
    other = tmp_path / "other.zip"
    other.write_bytes(b"PK\x03\x04 and nothing else")
    run = run_verifier(other)
    assert (run.returncode, run.stdout) == (2, "")


def test_a_forged_name_reaches_no_terminal(bundle: Path, tmp_path: Path) -> None:
    files = files_of(bundle)
    manifest = json.loads(files[verify.MANIFEST])
    manifest["files"]["\x1b[2J\u202e\ud800"] = {}
    forged = tmp_path / "forged.zip"
    forged.write_bytes(verify.write_zip({**files, verify.MANIFEST: verify.manifest_text(manifest)}))
    run = run_verifier(forged)
    assert (run.returncode, run.stderr) == (1, "")
    assert "\\x1b[2J\\u202e\\ud800: it is listed" in run.stdout


def test_the_verifier_is_written_for_python_3_9() -> None:
    ast.parse(VERIFIER.read_text("utf-8"), feature_version=(3, 9))


# --- changes of the bytes


def test_every_random_flip_of_a_bit_is_found(bundle: Path) -> None:
    data = bundle.read_bytes()
    missed: list[int] = []
    for seed in range(MUTATIONS):
        place = random.Random(seed).randrange(len(data))
        changed = bytearray(data)
        changed[place] ^= 1 << seed % 8
        if not _is_found(bytes(changed)):
            missed.append(place)
    assert missed == []


def test_every_cut_and_every_addition_is_found(bundle: Path) -> None:
    data = bundle.read_bytes()
    random_ = random.Random(0)
    cuts = [data[: random_.randrange(len(data))] for _ in range(40)]
    added = [data + b"\0", b"\0" + data, data + data]
    assert [len(one) for one in (*cuts, *added) if not _is_found(one)] == []


# --- changes of the files, in an archive that is made anew


def _drop_file(files: Files, random_: random.Random) -> Files:
    name = random_.choice(sorted(files))
    return {other: data for other, data in files.items() if other != name}


def _change_file(files: Files, random_: random.Random) -> Files:
    name = random_.choice(sorted(files))
    data = bytearray(files[name])
    data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
    return {**files, name: bytes(data)}


def _change_manifest(files: Files, random_: random.Random) -> Files:
    manifest = json.loads(files[verify.MANIFEST])
    names = [name for name in manifest if name not in ("digest", "turnlog", "files")]
    return refreshed(files, **{random_.choice(names): random_.choice([0, "x", [], None])})


def _lines_of(files: Files, name: str, lines: list[bytes]) -> Files:
    return refreshed({**files, name: b"".join(line + b"\n" for line in lines)})


def _drop_line(files: Files, random_: random.Random) -> Files:
    name = random_.choice([verify.EVENTS, verify.BOUNDARIES, verify.PROMPTS])
    lines = files[name].splitlines()
    del lines[random_.randrange(len(lines))]
    return _lines_of(files, name, lines)


def _double_line(files: Files, random_: random.Random) -> Files:
    name = random_.choice([verify.EVENTS, verify.BOUNDARIES, verify.PROMPTS])
    lines = files[name].splitlines()
    place = random_.randrange(len(lines))
    return _lines_of(files, name, [*lines[: place + 1], *lines[place:]])


def _swap_lines(files: Files, random_: random.Random) -> Files:
    lines = files[verify.EVENTS].splitlines()
    one, other = random_.sample(range(len(lines)), 2)
    lines[one], lines[other] = lines[other], lines[one]
    return _lines_of(files, verify.EVENTS, lines)


def _change_value(files: Files, random_: random.Random) -> Files:
    """Another value somewhere in an event, a boundary or a prompt."""
    name = random_.choice([verify.EVENTS, verify.EVENTS, verify.EVENTS, verify.BOUNDARIES, verify.PROMPTS])
    lines = files[name].splitlines()
    place = random_.randrange(len(lines))
    record = json.loads(lines[place])
    holder = record["fields"] if name == verify.EVENTS and random_.random() < 0.5 else record
    field = random_.choice(sorted(holder))
    value = holder[field]
    if isinstance(value, int):
        holder[field] = random_.choice([value + 1, str(value), float(value), True])
    elif isinstance(value, str):
        holder[field] = random_.choice([value + " ", value[:-1], value.swapcase() + "x", [value]])
    elif isinstance(value, list):
        texts = cast("list[str]", value)
        holder[field] = random_.choice([[*texts, "x"], texts[:-1] if texts else ["y"], json.dumps(texts)])
    else:
        holder[field] = {**value, "x": "y"}
    lines[place] = verify.line_of(record).encode()
    return _lines_of(files, name, lines)


def _drop_value(files: Files, random_: random.Random) -> Files:
    lines = files[verify.EVENTS].splitlines()
    place = random_.randrange(len(lines))
    record = json.loads(lines[place])
    holder = record["fields"] if random_.random() < 0.5 else record
    del holder[random_.choice(sorted(holder))]
    lines[place] = verify.line_of(record).encode()
    return _lines_of(files, verify.EVENTS, lines)


def _same_value(files: Files, random_: random.Random) -> Files:
    """Other bytes that JSON reads as the same value."""
    name = random_.choice([verify.EVENTS, verify.BOUNDARIES, verify.PROMPTS])
    lines = files[name].splitlines()
    place = random_.randrange(len(lines))
    line = lines[place].decode()
    first = next(iter(json.loads(line)))
    lines[place] = random_.choice(
        [line + " ", "{ " + line[1:], line[:-1] + f',"{first}":{json.dumps(json.loads(line)[first])}}}']
    ).encode()
    return _lines_of(files, name, lines)


CHANGES: tuple[Callable[[Files, random.Random], Files], ...] = (
    _drop_file,
    _change_file,
    _change_manifest,
    _drop_line,
    _double_line,
    _swap_lines,
    _change_value,
    _change_value,
    _drop_value,
    _same_value,
)


def test_every_random_change_is_found_though_the_manifest_is_made_anew(bundle: Path) -> None:
    files = files_of(bundle)
    missed: list[object] = []
    for seed in range(MUTATIONS):
        random_ = random.Random(seed)
        change = random_.choice(CHANGES)
        changed = change(dict(files), random_)
        if changed == files:
            continue
        if not _is_found(verify.write_zip(changed)):
            missed.append((seed, change.__name__))
    assert missed == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("content", "{}"), ("salt", "0" * 32), ("timestamp", "2001-01-01T00:00:00+00:00"), ("chain", "0" * 64)],
)
def test_a_changed_event_is_found_at_its_version(bundle: Path, name: str, value: str) -> None:
    findings = _findings(with_event(files_of(bundle), 3, {name: value}))
    assert findings[0] == "event 3: its chain value does not follow from what it holds"


def test_a_number_that_became_text_is_found(bundle: Path) -> None:
    """The chain writes both in the same way, so it cannot tell them apart."""
    files = files_of(bundle)
    events = [json.loads(line) for line in files[verify.EVENTS].splitlines()]
    version = next(event["version"] for event in events if event["fields"].get("synthetic"))
    findings = _findings(with_event(files, version, {"synthetic": "1"}))
    assert findings == [f"event {version}: its field synthetic is not of its kind"]


def _without_content(files: Files, version: int) -> Files:
    """An event as a redaction leaves it: its commitment in place of content and salt."""
    event = json.loads(files[verify.EVENTS].splitlines()[version])
    commitment = verify.sha256(f"{event['salt']}\n{event['content']}".encode())
    return with_event(files, version, {"content": None, "salt": None, "commitment": commitment})


def test_a_content_that_is_gone_without_a_redaction_is_found(bundle: Path) -> None:
    assert _findings(_without_content(files_of(bundle), 3)) == [
        "event 3: its content is not there, and no redaction says so"
    ]


def _redacted(files: Files, **forged: object) -> list[str]:
    """What is found of a log in which event 3 was redacted, with these values of the redaction."""
    events = events_of(_without_content(files, 3))
    time = events[-1]["timestamp"]
    told = {"at": time, "by": "ada", "reason": "asked", "version": len(events)}
    events[3]["content"] = json.dumps({"redacted": told, "form": [{"type": "text"}]}, separators=(",", ":"))
    fields = {
        "event_id": "r1",
        "redacted_version": 3,
        "commitment_kept": events[3]["commitment"],
        "reason": "asked",
        "by": "ada",
        "form": '[{"type":"text"}]',
        **forged,
    }
    topic = verify.TOPIC + "ContentRedacted"
    events.append({"version": len(events), "topic": topic, "timestamp": time, "fields": fields})
    return _findings(rechained(files, events))


def test_a_content_that_a_later_event_says_was_redacted_may_be_gone(bundle: Path) -> None:
    assert _redacted(files_of(bundle)) == []


@pytest.mark.parametrize(
    ("name", "value", "finding"),
    [
        ("redacted_version", 2, "its content is not there, and no redaction says so"),
        ("commitment_kept", "0" * 64, "its content is not there, and no redaction says so"),
        ("by", "eve", "its marker is not the one of its redaction"),
        ("form", "[]", "its marker is not the one of its redaction"),
    ],
)
def test_a_redaction_that_says_something_else_is_found(
    bundle: Path, name: str, value: object, finding: str
) -> None:
    assert _redacted(files_of(bundle), **{name: value}) == [f"event 3: {finding}"]


def test_a_body_that_was_exchanged_is_found(bundle: Path) -> None:
    files = files_of(bundle)
    prompts = [json.loads(line) for line in files[verify.PROMPTS].splitlines()]
    prompts[0]["text"] = prompts[0]["text"].replace("Where", "There")
    lines = "".join(verify.line_of(prompt) + "\n" for prompt in prompts).encode()
    findings = _findings(refreshed({**files, verify.PROMPTS: lines}))
    version = prompts[0]["version"]
    assert findings == [f"prompt of event {version}: its body is not the one whose hash the event holds"]


# --- archives that are not made by an export


@pytest.mark.parametrize("padding", [0, 10_000_000])
def test_a_compressed_file_is_refused_unread(bundle: Path, padding: int) -> None:
    files = files_of(bundle)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            if name == verify.README:
                archive.writestr(name, data + b" " * padding, zipfile.ZIP_DEFLATED)
            else:
                archive.writestr(name, data)
    with pytest.raises(verify.NoBundleError, match="compressed"):
        verify.check(buffer.getvalue())


def test_a_name_that_leads_elsewhere_is_refused(bundle: Path) -> None:
    data = verify.write_zip({**files_of(bundle), "../../etc/passwd": b""})
    with pytest.raises(verify.NoBundleError, match="no bundle has"):
        verify.check(data)


def test_a_link_is_refused(bundle: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(files_of(bundle).items()):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = (0o120777 if name == verify.README else 0o644) << 16
            archive.writestr(entry, data)
    with pytest.raises(verify.NoBundleError, match="more than its files"):
        verify.check(buffer.getvalue())


def test_a_name_that_stands_twice_is_refused(bundle: Path) -> None:
    buffer = io.BytesIO()
    files = files_of(bundle)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr(verify.EVENTS, files[verify.EVENTS])
    with pytest.raises(verify.NoBundleError, match="twice"):
        verify.check(buffer.getvalue())


# --- signed heads


def test_a_rewritten_history_is_found_by_the_key(bundle: Path, tmp_path: Path) -> None:
    key = new_key_file(tmp_path / "key")
    signer = Ed25519Signer.of_file(tmp_path / "key")
    signed = tmp_path / "signed.zip"
    with filled() as sessions:
        export_bundle(sessions, SID, signed, signer=signer, renderers=RENDERERS)
    assert run_verifier(signed, "--key", key).returncode == 0
    heads = files_of(signed)[verify.HEADS]
    forged = refreshed({**files_of(bundle), verify.HEADS: heads})
    assert any(finding.startswith("heads.json") for finding in _findings(forged))
    assert verify.check(bundle.read_bytes(), key).findings
    other = new_key_file(tmp_path / "other")
    assert run_verifier(signed, "--key", other).returncode == 1


def test_a_changed_signature_is_found(tmp_path: Path) -> None:
    new_key_file(tmp_path / "key")
    path = tmp_path / "signed.zip"
    with filled() as sessions:
        export_bundle(
            sessions, SID, path, signer=Ed25519Signer.of_file(tmp_path / "key"), renderers=RENDERERS
        )
    files = files_of(path)
    heads = json.loads(files[verify.HEADS])
    heads["taken_at"] = "2001" + heads["taken_at"][4:]
    forged = refreshed({**files, verify.HEADS: json.dumps(heads).encode()})
    assert [finding.split(" of key")[0] for finding in _findings(forged)] == [
        "heads.json: the signature is not one"
    ]


def test_heads_of_yesterday_go_with_a_bundle_of_today(tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    with filled() as sessions:
        heads = SessionAudit(sessions).export_heads()
        sessions.append_event(SID, "ACME.AUDIT", {"later": True})
        export_bundle(sessions, SID, path, heads=heads, renderers=RENDERERS)
    assert verify.check(path.read_bytes()).findings == []


# --- the verifier's own table of events


def _fields(event: type[StreamEvent]) -> dict[str, str]:
    return {field.name: str(field.type).removesuffix(" | None") for field in fields(event)}


def test_the_verifier_knows_every_event_and_every_field() -> None:
    common = set(verify.ALL.split())
    beside = {"originator_id", "originator_version", "timestamp", "chain", "content", "salt", "commitment"}
    known = {
        verify.TOPIC + kind: (set(fields.split()) | common, kind in verify.HAVE_CONTENT)
        for kind, fields in verify.FIELDS.items()
    }
    here = {
        event.TOPIC: (set(_fields(event)) - beside, issubclass(event, ContentEvent))
        for event in STREAM_EVENTS
        if event not in (SessionDeleted, EventErased)
    }
    assert {topic: known[topic] for topic in here} == here


def test_the_verifier_knows_the_kind_of_every_field() -> None:
    for event in STREAM_EVENTS:
        for name, kind in _fields(event).items():
            if name in verify.INTEGERS | verify.LISTS:
                assert kind == ("int" if name in verify.INTEGERS else "list[str]"), name
            elif not name.startswith("originator") and name not in ("timestamp", "keeps_content"):
                assert kind == "str", name

"""A session with every kind of event and recorded prompts, and bundles of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.audit.calls import FIND, Asked, ScriptedChat
from tests.audit.logs import BEGIN, WordCount, compact, say_turns
from tests.audit.renderers import RENDERERS

from turnlog.application.audit import PromptRecorder
from turnlog.application.service import SessionService
from turnlog.domain.messages import Message, ToolCallPart
from turnlog.infrastructure.bundle import verify

SID = "rich ✓"
VERIFIER = Path(verify.__file__)


def filled(**settings: Any) -> SessionService:
    """A service that holds the session."""
    sessions = SessionService(token_estimator=WordCount(), **settings)
    fill(sessions)
    return sessions


def fill(sessions: SessionService) -> None:
    """Every kind of event, two compactions, and recorded requests."""
    sessions.create(SID, metadata={"title": "Parcels"}, context={"actor": "ada"})
    sessions.append_message(SID, Message.system("Be kind."), event_id="s0")
    say_turns(sessions, SID, 0, 3)
    compact(sessions, SID)
    sessions.append_event(SID, "ACME.AUDIT", {"ok": True, "odd": "\ud800"})
    call = ToolCallPart(id="c1", name="find", arguments="{}", awaiting=True)
    sessions.append_message(SID, Message.assistant([call]), event_id="k1", branch="find")
    sessions.abandon(SID, "k1", "c1")
    sessions.update_metadata(SID, {"title": "Malmö"})
    sessions.extend(SID, BEGIN + timedelta(days=1))
    hold = sessions.hold(SID, "case 7", by="ada")
    sessions.release(SID, hold, by="bob")
    recorder = PromptRecorder(sessions, renderers=RENDERERS)
    chat = ScriptedChat(sessions, SID, recorder)
    chat.say("Where is it?", Asked(tools=(FIND,)), resends=["no_tools"])
    say_turns(sessions, SID, 3, 3)
    compact(sessions, SID, summarized=False)
    chat.say("Still there?", Asked(system="Be brief."))


def run_verifier(bundle: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The stand-alone verifier in a process of its own, without any package on its path."""
    program = bundle.parent / "verify.py"
    program.write_bytes(VERIFIER.read_bytes())
    return subprocess.run(
        [sys.executable, "-I", "-S", str(program), str(bundle), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def files_of(bundle: Path) -> dict[str, bytes]:
    """The files of a bundle."""
    return verify.read_zip(bundle.read_bytes())


def refreshed(files: Mapping[str, bytes], **says: object) -> dict[str, bytes]:
    """The same files with a manifest that lists them as they are now, as a careful forger makes it."""
    manifest = json.loads(files[verify.MANIFEST])
    rest = {name: data for name, data in files.items() if name != verify.MANIFEST}
    manifest["files"] = {n: {"bytes": len(d), "sha256": verify.sha256(d)} for n, d in rest.items()}
    return {**rest, verify.MANIFEST: verify.manifest_text({**manifest, **says})}


def with_event(
    files: Mapping[str, bytes], version: int, values: Mapping[str, str | None]
) -> dict[str, bytes]:
    """The files with other values in one event (None: without), and the manifest made anew."""
    lines = files[verify.EVENTS].splitlines()
    event = json.loads(lines[version])
    for name, value in values.items():
        holder = event["fields"] if name in event["fields"] else event
        holder[name] = value
        if value is None:
            del holder[name]
    lines[version] = verify.line_of(event).encode()
    return refreshed({**files, verify.EVENTS: b"\n".join(lines) + b"\n"})


def rechained(files: Mapping[str, bytes], events: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    """The files with these events, every chain value and the manifest made anew: what only a head tells."""
    aggregate, previous = json.loads(files[verify.MANIFEST])["aggregate"], "0" * 64
    for event in events:
        committed = event.get("commitment", "")
        if "salt" in event:
            committed = verify.sha256(f"{event['salt']}\n{event['content']}".encode())
        previous = event["chain"] = verify.link(previous, aggregate, event, committed)
    lines = "".join(verify.line_of(event) + "\n" for event in events).encode()
    says = {"events": len(events), "version": events[-1]["version"], "head": previous}
    return refreshed({**files, verify.EVENTS: lines}, **says)


def events_of(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """The events of a bundle."""
    return [json.loads(line) for line in files[verify.EVENTS].splitlines()]

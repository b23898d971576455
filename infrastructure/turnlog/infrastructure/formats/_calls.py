"""Calls and their results as a request needs them: paired by position, with names and ids that fit."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message, Part, Role, TextPart, ToolCallPart, ToolCallResponsePart
from turnlog.infrastructure.formats._plain import sendable, valid_text

START = "[start of the conversation]"
"""The user message of a request that would have none in front."""
EMPTY_RESULT = "[empty result]"
INTERRUPTED = "[no result: the call was interrupted]"
UNANSWERED = "[no result so far]"
"""Stands for the result of a call that was marked as awaiting it; whether one will come is not known here."""
RAW_ARGUMENTS = "raw_arguments"
"""The only member of the object that stands for arguments which are no JSON object."""

_MAX_DEPTH = 100


@dataclass(eq=False)
class Call:
    """A call with the newest of its results, and the origin of the message that brought it."""

    part: ToolCallPart
    response: ToolCallResponsePart | None = None
    response_origin: str | None = None

    @property
    def is_open(self) -> bool:
        return self.response is None or self.response.provisional

    @property
    def placeholder(self) -> str:
        """What a request says in place of a result that is not there."""
        return UNANSWERED if self.part.awaiting else INTERRUPTED


@dataclass(frozen=True)
class Said:
    """A message that is no result: its parts in order, with each call and the result that belongs to it."""

    message: Message
    parts: tuple[Part | Call, ...]


def paired(events: Iterable[SessionEvent]) -> list[Said]:
    """All messages but results, with every result at its call; results without a call are left out.

    Calls of users (simulations have them) are not the model's and are left out, and so are their results.
    """
    branches: dict[str | None, _Calls] = defaultdict(_Calls)
    said: list[Said] = []
    for event in events:
        message, calls = event.message, branches[event.branch]
        if message is None:
            continue
        if message.role is Role.ASSISTANT:
            parts = tuple(Call(part) if isinstance(part, ToolCallPart) else part for part in message.parts)
            said.append(Said(message, parts))
            calls.asked([part for part in parts if isinstance(part, Call)])
        elif message.role is Role.TOOL:
            calls.answered(_responses(message), message.origin)
        elif message.role is Role.USER:
            calls.answered(message.tool_responses, message.origin)
            kept = (p for p in message.parts if not isinstance(p, (ToolCallPart, ToolCallResponsePart)))
            said.append(Said(message, tuple(kept)))
        else:
            said.append(Said(message, message.parts))
    return said


class _Calls:
    """The calls of a branch so far.

    Providers use ids again, so a result belongs to the newest message that asked for a call of its id, or,
    when all is answered there, to an older call that is marked as awaiting.
    """

    def __init__(self) -> None:
        self._by_id: dict[str | None, list[list[Call]]] = defaultdict(list)
        self._newest: list[Call] = []

    def asked(self, batch: list[Call]) -> None:
        if not batch:
            return
        self._newest = batch
        for name in dict.fromkeys(call.part.id for call in batch):
            self._by_id[name].append([call for call in batch if call.part.id == name])

    def answered(self, responses: Iterable[ToolCallResponsePart], origin: str | None) -> None:
        for response in responses:
            call = self._call_of(response)
            if call:
                call.response, call.response_origin = response, origin

    def _call_of(self, response: ToolCallResponsePart) -> Call | None:
        if response.id is None:
            return _first_open(call for call in self._newest if _same_name(call, response))
        if response.id not in self._by_id:
            return _first_open(c for c in self._newest if c.part.id is None and _same_name(c, response))
        *older, newest = self._by_id[response.id]
        if call := _first_open(newest):
            return call
        awaiting = (
            call for batch in reversed(older) for call in batch if call.part.awaiting and call.is_open
        )
        return next(awaiting, newest[-1])


def _first_open(calls: Iterable[Call]) -> Call | None:
    """The first call without any result, else the first whose result is provisional."""
    found = [call for call in calls if call.is_open]
    return min(found, key=lambda call: call.response is not None, default=None)


def _same_name(call: Call, response: ToolCallResponsePart) -> bool:
    return response.name is None or response.name == call.part.name


def _responses(message: Message) -> list[ToolCallResponsePart]:
    """The results of a tool message; parts of other kinds belong to the result before them."""
    responses: list[ToolCallResponsePart] = []
    for part in message.parts:
        if isinstance(part, ToolCallResponsePart):
            responses.append(part)
        elif responses:
            last = responses[-1]
            responses[-1] = last.model_copy(update={"response": (*response_parts(last), part)})
        else:
            known = message.extra.get("tool_call_id")
            response = part.content if isinstance(part, TextPart) else (part,)
            fields: Mapping[str, Any] = {
                "id": known if isinstance(known, str) else None,
                "response": response,
            }
            responses.append(ToolCallResponsePart.model_validate(fields))
    return responses


def response_parts(response: ToolCallResponsePart) -> tuple[Part, ...]:
    """The result as parts, whatever form it has."""
    given = response.response
    return (TextPart(content=given),) if isinstance(given, str) else given


class WireIds:
    """Ids of calls as a provider accepts them: each once in a request; one that fits stays.

    An id depends only on the calls before it, so a request that grows keeps its beginning.
    """

    def __init__(self, fitting: re.Pattern[str]) -> None:
        self._fitting = fitting
        self._taken: set[str] = set()
        self._times: dict[str | None, int] = defaultdict(int)

    def take(self, wanted: str | None) -> str:
        """The id under which the next call is sent."""
        found = wanted
        while not found or found in self._taken or not self._fitting.fullmatch(found):
            self._times[wanted] += 1
            found = "call_" + _digest(f"{self._times[wanted]} {wanted or ''}")[:24]
        self._taken.add(found)
        return found


def wire_name(name: str, max_length: int) -> str:
    """The name in the characters that tools may have; other names of equal letters stay distinct."""
    if re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{max_length}}}", name):
        return name
    letters = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[: max_length - 9] or "tool"
    return f"{letters}_{_digest(name)[:8]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def arguments_object(arguments: str) -> dict[str, Any]:
    """The arguments as an object; what is no JSON object is wrapped in one, nothing is an empty one."""
    if not arguments.strip():
        return {}
    parsed = _object(arguments)
    return {RAW_ARGUMENTS: arguments} if parsed is None else parsed


def arguments_text(arguments: str) -> str:
    """The arguments as the model wrote them where they are a JSON object, else the text of one.

    Escapes of lone surrogates are valid JSON that strict readers refuse: the object is written anew then.
    """
    parsed = _object(arguments)
    if parsed is None or not _is_utf8(json.dumps(parsed, ensure_ascii=False)):
        return json.dumps(sendable(arguments_object(arguments)), ensure_ascii=False)
    return arguments


def _is_utf8(text: str) -> bool:
    return valid_text(text) == text


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or _is_deeper(cast("object", value), _MAX_DEPTH):
        return None
    return cast("dict[str, Any]", value)


def _is_deeper(value: object, depth: int) -> bool:
    if isinstance(value, Mapping):
        value = list(cast("Mapping[str, object]", value).values())
    if not isinstance(value, list):
        return False
    return depth == 0 or any(_is_deeper(item, depth - 1) for item in cast("list[object]", value))

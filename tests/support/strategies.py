"""Random messages, parts, payloads and entries: any text, NUL and lone surrogates included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from turnlog.domain.log import EventType
from turnlog.domain.messages import (
    BlobPart,
    GenericPart,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
    UriPart,
)

CALL_IDS = ("c1", "c2", "c3")
BRANCHES = (None, None, None, "scout", "scout.reader", "writer")

AWKWARD = (
    "",
    " ",
    "\0",
    "\ud800",
    "a\udfffb",
    "漢字",
    "🙂",
    "‮",
    "<|endoftext|>",
    '{"_type_":"x","_data_":"y"}',
    "\\u0000",
)

any_text: SearchStrategy[str] = st.one_of(
    st.sampled_from(AWKWARD), st.text(st.characters(exclude_categories=()), max_size=12)
)
"""Any text at all, also what has no UTF-8 form."""

json_values: SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        any_text,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(any_text, inner, max_size=3)),
    max_leaves=6,
)
json_objects: SearchStrategy[dict[str, Any]] = st.dictionaries(any_text, json_values, max_size=3)
contexts: SearchStrategy[dict[str, str]] = st.dictionaries(any_text, any_text, max_size=2)

event_types: SearchStrategy[EventType] = st.sampled_from(
    [EventType.of("ACME.AUDIT"), EventType.of("NOTE"), EventType.of("A1_B.C")]
)
times: SearchStrategy[datetime] = st.datetimes(
    datetime(1990, 1, 1),
    datetime(2090, 1, 1),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))]),
)

_further: SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["signature", "cache_control", "is_error", "citations", "ключ"]), json_values, max_size=2
)


@st.composite
def parts(draw: st.DrawFn) -> Part:
    """A part that is no call and no result, with further fields at times."""
    further = draw(_further)
    match draw(st.sampled_from(["text", "text", "reasoning", "blob", "uri", "other"])):
        case "text":
            return TextPart(content=draw(any_text), **further)
        case "reasoning":
            return ReasoningPart(content=draw(st.none() | any_text), **further)
        case "blob":
            return BlobPart(modality="image", mime_type="image/png", content=draw(any_text), **further)
        case "uri":
            return UriPart(modality="image", uri=draw(any_text), **further)
        case _:
            return GenericPart(type="acme_widget", **further)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """A message of any role with any content: for what must come back as it was."""
    role = draw(st.sampled_from(["system", "user", "assistant", "tool"]))
    content: list[Part] = draw(st.lists(parts(), max_size=3))
    if role == "assistant":
        content += draw(st.lists(_calls(any_text), max_size=2))
    if role == "tool":
        content += draw(st.lists(_responses(any_text), max_size=2))
    return Message(
        role=role,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # pydantic takes the text
        parts=tuple(content),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # checked by pydantic
        origin=draw(st.none() | any_text),
        shape=draw(st.none() | json_objects),
        metadata=draw(st.none() | json_objects),
        **draw(_further),
    )


@st.composite
def conversation_messages(draw: st.DrawFn) -> Message:
    """A message as conversations have them: short texts, calls and results that often meet."""
    text = draw(st.sampled_from(["", "hi", "a longer text with some more words in it", *AWKWARD[2:7]]))
    match draw(st.sampled_from(["user", "user", "user", "assistant", "calls", "results", "system"])):
        case "user":
            return Message.user(text)
        case "assistant":
            return Message.assistant(text)
        case "calls":
            return Message.assistant(
                draw(st.lists(_calls(st.sampled_from(CALL_IDS)), min_size=1, max_size=3))
            )
        case "results":
            return Message.tool(draw(st.lists(_responses(st.sampled_from(CALL_IDS)), min_size=1, max_size=3)))
        case _:
            return Message.system(text)


@st.composite
def _calls(draw: st.DrawFn, ids: SearchStrategy[str]) -> ToolCallPart:
    return ToolCallPart(
        id=draw(ids), name="look_up", arguments=draw(any_text), awaiting=draw(st.integers(0, 2)) == 0
    )


@st.composite
def _responses(draw: st.DrawFn, ids: SearchStrategy[str]) -> ToolCallResponsePart:
    content: Any = draw(any_text | st.lists(parts(), max_size=2).map(tuple))
    return ToolCallResponsePart(id=draw(ids), response=content, provisional=draw(st.integers(0, 2)) == 0)

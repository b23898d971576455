"""Between two boundaries the messages of a call are, as bytes, the beginning of those of the next call.

Providers cache by prefixes, so a conversation that grows must not change what was sent before. A codec joins
by an entry in `CODECS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnlog.application.chat import ChatRequest
from turnlog.domain.json_text import to_json_text
from turnlog.domain.messages import Message, Part, ReasoningPart, Role, TextPart, ToolCallPart
from turnlog.infrastructure.formats import anthropic_messages, openai_chat, openai_responses
from turnlog.infrastructure.models.anthropic_messages import CACHE_IN_BLOCKS, AnthropicMessagesCodec
from turnlog.infrastructure.models.codec import Codec
from turnlog.infrastructure.models.openai_chat import OpenAIChatCodec
from turnlog.infrastructure.models.openai_responses import OpenAIResponsesCodec

MODEL = "gpt-5"


def anthropic_blocks(body: dict[str, Any]) -> list[Any]:
    """Each block with its role, because what follows in the same role joins the message before it."""
    return [[one["role"], block] for one in body["messages"] for block in one["content"]]


def chat_messages(body: dict[str, Any]) -> list[Any]:
    """The messages."""
    return list(body["messages"])


def responses_items(body: dict[str, Any]) -> list[Any]:
    """The items."""
    return list(body["input"])


CODECS: dict[str, tuple[Codec, Callable[[dict[str, Any]], list[Any]]]] = {
    "anthropic.messages": (AnthropicMessagesCodec(), anthropic_blocks),
    "openai.chat": (OpenAIChatCodec(), chat_messages),
    "openai.responses": (OpenAIResponsesCodec(), responses_items),
}
"""Each codec, and the pieces of its body that one call has in common with the next."""
EACH = pytest.mark.parametrize("name", CODECS)

texts = st.sampled_from(["Where?", "In Lund.", " ", "", "«hej»\n", "\ud800", "x "])
ids = st.sampled_from(["c1", "c1", "c2", "c.3", "с1", "c" * 80])
origins = st.sampled_from([None, openai_chat.ORIGIN, anthropic_messages.ORIGIN, openai_responses.ORIGIN])
models = st.sampled_from([None, MODEL, "claude-opus-4-1"])


@st.composite
def thoughts(draw: st.DrawFn) -> Part:
    """Reasoning of any provider; of the Responses API each item has an id of its own."""
    name = f"rs_{draw(st.integers(1, 9))}"
    fields = draw(
        st.sampled_from([{"signature": "s"}, {"encrypted_content": "e", "id": name}, {"id": name}, {}])
    )
    return ReasoningPart.model_validate({"content": draw(texts), **fields})


said = texts.map(lambda text: TextPart(content=text))


@st.composite
def steps(draw: st.DrawFn) -> list[Message]:
    """What is added at once: a message of the user, or an answer with the results of all its calls."""
    if draw(st.booleans()):
        return [Message.of(Role.USER, draw(texts))]
    calls = [
        ToolCallPart.model_validate(
            {"id": name, "name": "find", "arguments": "{}", "item_id": f"fc_{place}{name}"}
        )
        for place, name in enumerate(draw(st.lists(ids, max_size=3)))
    ]
    parts = [*draw(st.lists(thoughts() | said, max_size=3)), *calls, *draw(st.lists(said, max_size=1))]
    model = draw(models)
    answer = Message.assistant(parts, origin=draw(origins), metadata={"model": model} if model else None)
    return [answer, *(Message.tool(draw(texts), id=call.id) for call in calls)]


conversations = st.lists(steps(), min_size=1, max_size=5).map(
    lambda drawn: [Message.user("Hello."), *(message for step in drawn for message in step)]
)


def serialised(
    name: str, messages: list[Message], adaptations: frozenset[str] = frozenset(), **fields: Any
) -> str:
    """What is sent, as the text that begins like that of the next call: without the end of the list."""
    codec, pieces = CODECS[name]
    body = codec.encode(ChatRequest(tuple(messages), **fields), MODEL, stream=False, adaptations=adaptations)
    return to_json_text(pieces(body)).removesuffix("]")


def asked(messages: list[Message]) -> list[Message]:
    """The conversation as a model is asked: behind an answer comes what is asked next.

    A request that ends with an answer has no white space at its end, because the provider refuses it.
    """
    return [*messages, Message.user("And then?")]


@EACH
@settings(deadline=None)
@given(conversations, conversations, st.booleans())
def test_what_is_sent_begins_with_what_was_sent_before(
    name: str, first: list[Message], then: list[Message], cache: bool
) -> None:
    before = asked(first)
    earlier = serialised(name, before, cache=cache)
    assert serialised(name, [*before, *then], cache=cache).startswith(earlier)


@EACH
@settings(deadline=None)
@given(conversations)
def test_what_is_sent_does_not_depend_on_the_cache(name: str, conversation: list[Message]) -> None:
    assert serialised(name, conversation, cache=True) == serialised(name, conversation)


@EACH
@settings(deadline=None)
@given(conversations, st.sampled_from(["Be brief.", " "]))
def test_instructions_that_stay_where_they_stand_change_nothing_before_them(
    name: str, conversation: list[Message], text: str
) -> None:
    before = asked(conversation)
    earlier = serialised(name, before, system_in_place=True)
    later = [*before, Message.system(text), Message.user("And now?")]
    assert serialised(name, later, system_in_place=True).startswith(earlier)


@settings(deadline=None)
@given(conversations, conversations)
def test_marks_on_blocks_are_all_that_moves_where_the_option_is_unknown(
    first: list[Message], then: list[Message]
) -> None:
    before = asked(first)
    adapted = frozenset((CACHE_IN_BLOCKS,))
    mark = ',"cache_control":{"type":"ephemeral"}'
    earlier, later = (
        serialised("anthropic.messages", messages, adapted, cache=True).replace(mark, "")
        for messages in (before, [*before, *then])
    )
    assert later.startswith(earlier)

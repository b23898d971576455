"""Chat models against a real server. What is said is not looked at, how it is said is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests_llm.conftest import OPTIONS, WINDOW, Question

from turnlog.application.chat import ContextOverflowError, FinishReason, TextDelta
from turnlog.domain.messages import Message
from turnlog.infrastructure.models import (
    AnthropicChatModel,
    HttpChatModel,
    OpenAIChatModel,
    OpenAIResponsesModel,
)

OPTIONS_OF = {
    OpenAIChatModel: OPTIONS,
    OpenAIResponsesModel: {"temperature": 0},
    AnthropicChatModel: {"temperature": 0, "stop_sequences": OPTIONS["stop"]},
}
ALL = pytest.mark.parametrize("kind", OPTIONS_OF)


def test_the_prompt_grows_with_the_message(model: HttpChatModel, question: Question) -> None:
    counts = []
    for words in (1, 50):
        usage = model.complete(model.render(question("parcel " * words, limit=1))).usage
        assert usage
        counts.append(usage.input_tokens or 0)
    assert counts[1] >= counts[0] + 45


def test_a_streamed_answer_is_the_whole_one_and_has_its_usage(
    model: HttpChatModel, question: Question
) -> None:
    asking = question("Count to a hundred: one, two, three,", limit=12)
    whole = model.complete(model.render(asking))
    with model.stream(model.render(asking, stream=True)) as pieces:
        texts = [piece.text for piece in pieces if isinstance(piece, TextDelta)]
    assert "".join(texts) == pieces.reply.message.text == whole.message.text
    assert len(texts) > 1
    assert pieces.reply.usage
    assert pieces.reply.usage.output_tokens
    assert pieces.reply.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)


def test_an_answer_is_cut_at_its_length(model: HttpChatModel, question: Question) -> None:
    reply = model.complete(model.render(question("Count to a hundred: one, two, three,", limit=3)))
    assert reply.finish_reason is FinishReason.LENGTH
    assert reply.usage
    assert reply.usage.output_tokens == 3


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_is_too_large_is_an_overflow_with_its_figures(
    model: HttpChatModel, question: Question, stream: bool
) -> None:
    def ask() -> None:
        rendered = model.render(question("parcel " * 3_000), stream=stream)
        if not stream:
            model.complete(rendered)
        else:
            with model.stream(rendered) as pieces:
                list(pieces)

    with pytest.raises(ContextOverflowError) as raised:
        ask()
    assert raised.value.limit == WINDOW
    assert raised.value.sent
    assert raised.value.sent > 3_000


def test_a_stream_that_is_left_frees_the_server(model: HttpChatModel, question: Question) -> None:
    asking = question("Tell me a long story about a parcel.", limit=1_500)
    with model.stream(model.render(asking, stream=True)) as pieces:
        first = next(iter(pieces))
    assert isinstance(first, TextDelta)
    assert pieces.reply.finish_reason is FinishReason.CANCELLED
    assert pieces.reply.message.text
    reply = model.complete(model.render(question("And now?", limit=2)))
    assert reply.usage


def test_what_was_sent_before_is_read_from_the_cache(model: HttpChatModel, question: Question) -> None:
    told: list[str | Message] = [Message.system("Parcels are in Lund. " * 40), "Where is my parcel?"]
    answer = model.complete(model.render(question(*told)))
    again = model.complete(model.render(question(*told, answer.message, "Are you sure?")))
    assert again.usage
    assert again.usage.cache_read_input_tokens
    assert again.usage.cache_read_input_tokens > 200


@ALL
def test_every_api_of_the_server_answers_and_streams(
    kind: type[OpenAIChatModel], url: str, question: Question
) -> None:
    asking = question("What is the capital of France?", limit=8)
    with kind("gemma", base_url=url, api_key="none-is-needed") as model:
        asking = replace(asking, options=OPTIONS_OF[kind])
        whole = model.complete(model.render(asking))
        with model.stream(model.render(asking, stream=True)) as pieces:
            came = list(pieces)
        assert came
        assert pieces.reply.message.text == whole.message.text
        assert whole.usage
        assert whole.usage.input_tokens

"""How servers say that a request is too large: what they really send."""

# ruff: noqa: E501 - the texts of servers as they are

from __future__ import annotations

from typing import Any

import pytest

from turnlog.application.chat import ContextOverflowError, ModelUnavailableError
from turnlog.infrastructure.models.failures import http_error

OPENAI = {
    "message": "This model's maximum context length is 128000 tokens. However, your messages resulted in 130213 "
    "tokens. Please reduce the length of the messages.",
    "type": "invalid_request_error",
    "param": "messages",
    "code": "context_length_exceeded",
}
LLAMA = {
    "code": 400,
    "message": "request (2345 tokens) exceeds the available context size (2048 tokens), try increasing it",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 2345,
    "n_ctx": 2048,
}
VLLM = (
    "This model's maximum context length is 2048 tokens. However, you requested 2100 tokens (2000 in the "
    "messages, 100 in the completion). Please reduce the length of the messages or completion."
)
NEW_VLLM = (
    "You passed 4097 input tokens and requested 1 output tokens. However, the model's context length is only "
    "4096 tokens, resulting in a maximum input length of 4095 tokens."
)
CASES: list[tuple[str, int, Any, int | None, int | None]] = [
    ("OpenAI", 400, {"error": OPENAI}, 128_000, 130_213),
    (
        "OpenAI Responses",
        400,
        {
            "error": {
                "message": "Your input exceeds the context window of this model. Please adjust your input "
                "and try again.",
                "code": "context_length_exceeded",
            }
        },
        None,
        None,
    ),
    (
        "Anthropic",
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 208310 tokens > 200000 maximum",
            },
        },
        200_000,
        208_310,
    ),
    (
        "Anthropic with max_tokens",
        400,
        {
            "error": {
                "type": "invalid_request_error",
                "message": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, "
                "decrease input length or `max_tokens` and try again",
            }
        },
        200_000,
        188_240,
    ),
    (
        "Anthropic 413",
        413,
        {"error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}},
        None,
        None,
    ),
    ("a proxy", 413, None, None, None),
    ("llama.cpp", 400, {"error": LLAMA}, 2048, 2345),
    ("llama.cpp of old", 500, {"error": {**LLAMA, "code": 500}}, 2048, 2345),
    (
        "llama.cpp without figures",
        500,
        {
            "error": {
                "code": 500,
                "message": "the request exceeds the available context size. try increasing the "
                "context size or enable context shift",
                "type": "server_error",
            }
        },
        None,
        None,
    ),
    ("vLLM", 400, {"object": "error", "message": VLLM, "type": "BadRequestError", "code": 400}, 2048, 2100),
    ("vLLM nested", 400, {"error": {"message": VLLM, "type": "BadRequestError", "code": 400}}, 2048, 2100),
    ("vLLM of today", 400, {"error": {"message": NEW_VLLM}}, 4096, 4097),
    (
        "vLLM's engine",
        400,
        {"message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096."},
        4096,
        5000,
    ),
    ("Ollama", 400, {"error": "the input length exceeds the context length"}, None, None),
    (
        "LM Studio",
        400,
        {
            "error": "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded "
            "with context length of only 4096 tokens, which is not enough."
        },
        4096,
        5000,
    ),
    (
        "Groq",
        400,
        {
            "error": {
                "message": "Please reduce the length of the messages or completion.",
                "code": "context_length_exceeded",
            }
        },
        None,
        None,
    ),
    (
        "Mistral",
        400,
        {
            "object": "error",
            "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with "
            "32768 maximum context length",
        },
        32_768,
        40_000,
    ),
    (
        "xAI",
        400,
        {"error": "This model's maximum prompt length is 131072 but the request contains 150000 tokens."},
        131_072,
        150_000,
    ),
    (
        "Gemini",
        400,
        {
            "error": {
                "message": "The input token count (1200000) exceeds the maximum number of tokens allowed "
                "(1048576)."
            }
        },
        1_048_576,
        1_200_000,
    ),
]


@pytest.mark.parametrize(
    ("server", "status", "body", "limit", "sent"), CASES, ids=[case[0] for case in CASES]
)
def test_an_overflow_is_understood_with_its_figures(
    server: str, status: int, body: Any, limit: int | None, sent: int | None
) -> None:
    error = http_error(status, body, "Payload Too Large")
    assert isinstance(error, ContextOverflowError)
    assert (error.limit, error.sent) == (limit, sent)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (
            429,
            {
                "error": {
                    "message": "Rate limit reached: Limit 30000 tokens per min, please reduce your prompt"
                }
            },
        ),
        (
            429,
            {
                "error": {
                    "message": "Request too large for model in tokens per minute: Limit 6000, Requested 700"
                }
            },
        ),
        (400, {"error": {"message": "max_tokens is too large: 5000. This model supports at most 4096"}}),
        (401, {"error": {"message": "the key exceeds the context length"}}),
        (500, {"error": {"message": "internal error"}}),
        (400, {"error": {"message": "Invalid image"}}),
        (400, None),
    ],
)
def test_other_refusals_are_no_overflow(status: int, body: Any) -> None:
    assert not isinstance(http_error(status, body, ""), ContextOverflowError)


def test_a_rate_limit_in_tokens_is_worth_another_attempt() -> None:
    body = {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}
    assert isinstance(http_error(429, body, ""), ModelUnavailableError)


def test_an_overflow_says_both_figures_and_what_to_do() -> None:
    assert str(ContextOverflowError(2048, 2345)) == (
        "The request is larger than the model's context window (2,345 tokens were sent, it holds 2,048). "
        "Compact the session, or shorten what is sent."
    )


def test_an_overflow_without_figures_names_none() -> None:
    assert "window. Compact" in str(ContextOverflowError())

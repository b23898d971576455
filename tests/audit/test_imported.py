"""Calls about real conversations, imported and played through a scripted model, come back byte for byte."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from tests.audit.calls import FIND, Call
from tests.audit.logs import PLAIN, SUMMARIZED, WordCount
from tests.laws.profiles import IS_SOAK
from tests.support.providers.transcripts import files

from turnlog.application.audit import PromptRecorder, SessionAudit
from turnlog.application.chat import ChatRequest
from turnlog.application.service import SessionService
from turnlog.infrastructure.formats.importing import read_file
from turnlog.infrastructure.formats.writing import write_session
from turnlog.infrastructure.models import HttpChatModel, OllamaChatModel, OpenAIChatModel
from turnlog.infrastructure.models.anthropic_messages import AnthropicMessagesCodec
from turnlog.infrastructure.models.openai_responses import OpenAIResponsesCodec

TRANSCRIPTS = [
    path for kind in ("openai_chat", "anthropic_messages", "claude_code", "tau2") for path in files(kind)
]
MOST = 50 if IS_SOAK else 2
"""Conversations of one file that are taken; some files hold dozens of one kind."""

_HERE = "http://127.0.0.1:9"
MODELS = (
    OpenAIChatModel("m-1", base_url=_HERE),
    OllamaChatModel("m-1", base_url=_HERE),
    HttpChatModel(OpenAIResponsesCodec(), "m-1", base_url=_HERE, api_key="none"),
    HttpChatModel(AnthropicMessagesCodec(), "m-1", base_url=_HERE, api_key="none"),
)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_call_about_an_imported_conversation_comes_back(path: Path) -> None:
    with SessionService(token_estimator=WordCount()) as sessions:
        recorder, audit = PromptRecorder(sessions), SessionAudit(sessions)
        for conversation in islice(read_file(path).sessions(), MOST):
            sid = write_session(sessions, conversation).id
            sent: dict[str, bytes] = {}
            for strategy in (None, SUMMARIZED, PLAIN):
                if strategy is not None:
                    sessions.compact(sid, None, strategy)
                for number, model in enumerate(MODELS):
                    view = sessions.view(sid)
                    rendered = model.render(ChatRequest(view.told_events(), tools=(FIND,)))
                    call = Call(sid, f"{number}", None, view.version, 0, 1, rendered)
                    stored = sessions.append_events(sid, recorder.prompt(call))
                    assert "literal" not in (stored[-1].payload or {})
                    sent[stored[-1].id] = rendered.body
            assert {name: audit.told(sid, name).body for name in sent} == sent

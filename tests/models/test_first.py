"""placeholder"""

from tests.support.scripted_server import ScriptedServer, json_answer, sse_answer

from turnlog.application.chat import ChatRequest
from turnlog.domain.messages import Message
from turnlog.infrastructure.models import OpenAIChatModel

ASKED = ChatRequest((Message.user("Where is it?"),))


def test_a_streamed_answer_is_the_message_that_the_whole_answer_would_be(
    server: ScriptedServer, model: OpenAIChatModel
) -> None:
    message = {"role": "assistant", "content": "In Lund."}
    server.script(
        json_answer({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}),
        sse_answer(
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "In "}}]},
            {"choices": [{"index": 0, "delta": {"content": "Lund."}, "finish_reason": "stop"}]},
        ),
    )
    whole = model.complete(model.render(ASKED))
    with model.stream(model.render(ASKED, stream=True)) as stream:
        pieces = list(stream)
    assert len(pieces) == 2
    assert stream.reply == whole

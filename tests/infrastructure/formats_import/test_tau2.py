"""Results of tau2-bench."""

from __future__ import annotations

from typing import Any

from tests.infrastructure.formats_import.conftest import WriteFile, messages_of, said, sessions_of

from turnlog.domain.messages import ReasoningPart, Role

Json = dict[str, Any]

CALL = {"id": "c1", "name": "toggle_data", "arguments": {"on": True, "näme": "ü"}}


def results(*messages: Json, **simulation: Any) -> Json:
    info = {
        "environment_info": {"domain_name": "telecom"},
        "agent_info": {"llm": "gpt-x", "llm_args": {"api_key": "secret"}},
    }
    return {"info": info, "tasks": [], "simulations": [{"id": "sim-1", **simulation, "messages": messages}]}


def message(role: str, content: str | None = None, **fields: Any) -> Json:
    return {"role": role, "content": content, "timestamp": "2025-08-01T16:23:24.913644", **fields}


def test_a_simulation_is_a_session_under_its_own_id(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file(results(message("user", "hi"))))
    assert session.id == "sim-1"


def test_arguments_become_compact_json_text(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file(results(message("assistant", tool_calls=[CALL]))))
    assert messages_of(session)[0].tool_calls[0].arguments == '{"on":true,"näme":"ü"}'


def test_calls_of_the_user_and_their_results_are_on_the_users_branch(write_file: WriteFile) -> None:
    path = write_file(
        results(
            message("assistant", "Toggle it, please."),
            message("user", tool_calls=[{**CALL, "requestor": "user"}]),
            message("tool", "ON", id="c1", requestor="user"),
            message("user", "It is on."),
        )
    )
    (session,) = sessions_of(path)
    assert [one.role for one in messages_of(session, "user")] == [Role.ASSISTANT, Role.TOOL]


def test_what_the_user_says_stays_in_the_conversation(write_file: WriteFile) -> None:
    path = write_file(
        results(
            message("user", tool_calls=[{**CALL, "requestor": "user"}]),
            message("tool", "ON", id="c1", requestor="user"),
            message("user", "It is on."),
        )
    )
    (session,) = sessions_of(path)
    assert said(session) == [("user", "It is on.")]


def test_a_result_that_is_an_error_says_so(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file(results(message("tool", "no", id="c1", error=True))))
    assert messages_of(session)[0].tool_responses[0].extra == {"is_error": True}


def test_reasoning_is_kept(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file(results(message("assistant", "Yes.", reasoning="Hm."))))
    assert messages_of(session)[0].parts[0] == ReasoningPart(content="Hm.")


def test_a_time_without_an_offset_stays_in_the_metadata(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file(results(message("user", "hi", cost=0.5))))
    (event,) = session.events
    assert event.occurred_at is None
    assert event.message is not None
    assert event.message.metadata == {"timestamp": "2025-08-01T16:23:24.913644", "cost": 0.5}


def test_settings_of_models_are_not_metadata_because_they_hold_keys(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file(results(message("user", "hi"), trial=0)))
    assert session.metadata == {"domain": "telecom", "agent_model": "gpt-x", "trial": 0}

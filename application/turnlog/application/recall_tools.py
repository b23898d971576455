"""Two tools that let a model search what was said: in one session, or in all sessions of one principal.

What is searched is fixed by the caller who makes the tool; no argument of a call can widen it.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from turnlog.application.async_service import AsyncSessionService
from turnlog.application.recall import Recall
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.compaction import require_positive
from turnlog.domain.errors import InvalidSettingError, NaiveTimeError, shown
from turnlog.domain.log import SessionEvent
from turnlog.domain.query import EventQuery, InvalidArgumentError, said_at

NO_RESULTS: Final = "No results found."
"""What a model is told when nothing was found."""

DEFAULT_PAGE_SIZE: Final = 10

_BELOW_MICROSECONDS: Final = re.compile(r"[.,]\d{6}0*[1-9]")

_PAGE: Final = {"type": "integer", "minimum": 0, "description": "Page of the results, counted from 0."}


@dataclass(frozen=True)
class RecallResult:
    """One message that was found. `session_id` is None when only one session was searched."""

    timestamp: datetime
    type: str
    text: str
    session_id: str | None = None

    def to_dict(self) -> dict[str, str]:
        """The result as a model is told it; the time in UTC."""
        said = self.timestamp.astimezone(UTC).isoformat().replace("+00:00", "Z")
        found = {"timestamp": said, "type": self.type, "text": self.text}
        return found if self.session_id is None else {"session_id": self.session_id, **found}


class _SearchTool(ABC):
    """What both tools are: a name, a schema for a provider, and a call with the arguments of a model."""

    name: ClassVar[str]
    description: ClassVar[str]
    parameters: ClassVar[Mapping[str, Any]]
    """The JSON schema of the arguments."""

    def __init__(self, sessions: Recall | AsyncSessionService, page_size: int) -> None:
        self._sessions = sessions.sync if isinstance(sessions, AsyncSessionService) else sessions
        if not isinstance(self._sessions, Recall):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidSettingError(f"A search needs a SessionService, not {shown(sessions)}.")
        require_positive("`page_size`", page_size)
        self._page_size = page_size

    def __call__(self, arguments: Mapping[str, Any]) -> str:
        """The results as JSON text for the model, or `NO_RESULTS`. Raises `InvalidArgumentError`."""
        results = self.search(arguments)
        if not results:
            return NO_RESULTS
        return json.dumps([result.to_dict() for result in results], ensure_ascii=False)

    def search(self, arguments: Mapping[str, Any]) -> Sequence[RecallResult]:
        """One page of what was found, oldest first; arguments that are not in the schema have no effect."""
        try:
            return self._search(arguments)
        except NaiveTimeError as error:
            raise InvalidArgumentError(str(error)) from error

    @abstractmethod
    def _search(self, arguments: Mapping[str, Any]) -> Sequence[RecallResult]: ...

    @property
    def openai(self) -> dict[str, Any]:
        """The tool as OpenAI's chat completions take it."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
            },
        }

    @property
    def anthropic(self) -> dict[str, Any]:
        """The tool as Anthropic's messages take it."""
        return {
            "name": self.name,
            "description": self.description,
            "input_schema": dict(self.parameters),
        }


class ConversationSearch(_SearchTool):
    """`conversation_search`: one session, fixed by the caller and never by the model.

    Raises `InvalidArgumentError` for a missing session, `InvalidSettingError` for a page size below 1.
    """

    name = "conversation_search"
    description = (
        "Searches everything that was said in this conversation, also what is no longer shown to you. "
        "Results are in the order of the conversation, oldest first. Without a query all messages are listed."
    )
    parameters: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "A word or phrase that the text of a message contains. Case does not matter.",
            },
            "page": _PAGE,
        },
        "required": ["query"],
    }

    def __init__(
        self,
        sessions: Recall | AsyncSessionService,
        session_id: str | None,
        *,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> None:
        super().__init__(sessions, page_size)
        if not isinstance(session_id, str) or not session_id.strip():
            raise InvalidArgumentError("A search needs the session that it is about: give its session id.")
        self._session_id = session_id

    def _search(self, arguments: Mapping[str, Any]) -> Sequence[RecallResult]:
        text = _text(arguments, "query")
        query = EventQuery(
            keywords=(text,) if text.strip() else (), page=_page(arguments), page_size=self._page_size
        )
        return [_result(event) for event in self._sessions.search_events(self._session_id, query)]


class CrossSessionSearch(_SearchTool):
    """`cross_session_search`: all sessions of one principal, who is fixed when the tool is made.

    Raises `InvalidSettingError` for a blank principal or a page size below 1.
    """

    name = "cross_session_search"
    description = (
        "Searches everything that was said in all conversations with this user. Results are sorted by time, "
        "oldest first. Without a query all messages are listed."
    )
    parameters: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "Words or phrases parted by commas, at most 20. Case does not matter.",
            },
            "match_mode": {
                "type": "string",
                "enum": ["any", "all"],
                "description": "Whether a message must contain one of the terms (any) or every term (all).",
            },
            "since": {
                "type": "string",
                "format": "date-time",
                "description": "Earliest time of a message, with offset, such as 2031-05-01T09:00:00Z.",
            },
            "page": _PAGE,
        },
        "required": ["query"],
    }

    def __init__(
        self, sessions: Recall | AsyncSessionService, principal: str, *, page_size: int = DEFAULT_PAGE_SIZE
    ) -> None:
        super().__init__(sessions, page_size)
        if not isinstance(principal, str) or not principal.strip():  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidSettingError("A search over sessions needs the principal whose sessions they are.")
        self._where = {SessionAttributes.PRINCIPAL_NAME: principal}

    def _search(self, arguments: Mapping[str, Any]) -> Sequence[RecallResult]:
        text = _text(arguments, "query")
        query = EventQuery(
            keywords=[term.strip() for term in text.split(",")] if text.strip() else (),
            match="all" if str(arguments.get("match_mode")).lower() == "all" else "any",
            since=_instant(arguments, "since"),
            page=_page(arguments),
            page_size=self._page_size,
        )
        found = self._sessions.search_all(query, where=self._where)
        return [_result(event, event.session_id) for event in found]


def _result(event: SessionEvent, session_id: str | None = None) -> RecallResult:
    return RecallResult(said_at(event), event.role or "", event.text or "", session_id)


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidArgumentError(f"`{name}` must be text, it is {value!r:.80}.")
    return value or ""


def _page(arguments: Mapping[str, Any]) -> int:
    value = arguments.get("page")
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgumentError(f"`page` must be a whole number, it is {value!r:.80}.")
    return max(value, 0)


def _instant(arguments: Mapping[str, Any], name: str) -> datetime | None:
    text = _text(arguments, name).strip()
    if not text:
        return None
    try:
        instant = datetime.fromisoformat(text.upper())
        if _BELOW_MICROSECONDS.search(text):  # cut off by Python: the bound would let earlier messages in
            instant += datetime.resolution
    except (ValueError, OverflowError):
        instant = None
    if instant is None or instant.tzinfo is None:
        raise InvalidArgumentError(
            f"`{name}` must be a time with an offset, such as 2031-05-01T09:00:00Z, it is {text!r:.80}."
        )
    return instant

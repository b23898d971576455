"""The audit for asyncio: the same methods, each awaited, and the loop is never blocked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from turnlog.application.async_service import AnySessionService
from turnlog.application.audit.renderers import RendererRegistry
from turnlog.application.audit.service import SessionAudit

P = ParamSpec("P")
T = TypeVar("T")


def _in_thread(
    method: Callable[Concatenate[SessionAudit, P], T],
) -> Callable[Concatenate[AsyncSessionAudit, P], Coroutine[Any, Any, T]]:
    """The method as a coroutine that runs it in a thread, with the caller's context variables."""

    @wraps(method)
    async def call(self: AsyncSessionAudit, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self.sync, *args, **kwargs)

    return call


class AsyncSessionAudit:
    """`SessionAudit` for asyncio users, over the service they have. Arguments and errors are the same."""

    def __init__(self, sessions: AnySessionService, *, renderers: RendererRegistry | None = None) -> None:
        self.sync = SessionAudit(sessions, renderers=renderers)
        """The audit that does the work, for code that may block."""

    told = _in_thread(SessionAudit.told)
    record_prompt = _in_thread(SessionAudit.record_prompt)
    record_reply = _in_thread(SessionAudit.record_reply)
    view_at = _in_thread(SessionAudit.view_at)
    diff = _in_thread(SessionAudit.diff)
    explain = _in_thread(SessionAudit.explain)
    lineage = _in_thread(SessionAudit.lineage)
    carried = _in_thread(SessionAudit.carried)
    timeline = _in_thread(SessionAudit.timeline)
    passes = _in_thread(SessionAudit.passes)
    lost = _in_thread(SessionAudit.lost)
    verify = _in_thread(SessionAudit.verify)
    export_heads = _in_thread(SessionAudit.export_heads)
    stored = _in_thread(SessionAudit.stored)
    restore = _in_thread(SessionAudit.restore)

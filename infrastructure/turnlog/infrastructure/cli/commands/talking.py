"""The commands that ask a model."""

from __future__ import annotations

from typing import Annotated

import typer

from turnlog.infrastructure.cli.options import (
    BaseUrl,
    Database,
    Json,
    ModelName,
    ModelOptions,
    Provider,
    SessionId,
    SummarizerName,
    Window,
    settings_of,
)


def chat(
    context: typer.Context,
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="ID", help="A session to go on with, or the id of a new one.", show_default=False
        ),
    ] = None,
    message: Annotated[
        list[str] | None,
        typer.Option(
            "--message", "-m", metavar="TEXT", help="Say this and end; can be repeated.", show_default=False
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Ask again what got no answer, and say nothing new.")
    ] = False,
    provider: Provider = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
    option: ModelOptions = None,
    system: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Instructions, sent and not stored.", show_default=False),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="A Python function that the model may call; can be repeated.",
            show_default=False,
        ),
    ] = None,
    window: Window = None,
    summarizer: Annotated[
        SummarizerName,
        typer.Option(metavar="NAME", help="What summarizes: extractive, model, fallback or none."),
    ] = SummarizerName.FALLBACK,
    principal: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose session it is.", show_default=False)
    ] = None,
    max_output: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Tokens of an answer at most.", show_default=False),
    ] = None,
    thoughts: Annotated[bool, typer.Option("--thoughts", help="Show what the model thinks.")] = False,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Talk to a model; every message is stored as it happens.

    On a terminal Ctrl-C stops an answer and Ctrl-D ends the chat. The key is
    read from OPENAI_API_KEY or ANTHROPIC_API_KEY.

    Example: turnlog chat --model gpt-5-mini -m "Where is my parcel?"
    """
    from turnlog.infrastructure.cli.asking import Asked
    from turnlog.infrastructure.cli.talking import Talk, talk

    return talk(
        settings_of(context, db, as_json),
        session,
        Talk(
            asked=Asked(provider, model, base_url, tuple(option or ()), window),
            messages=tuple(message or ()),
            resumes=resume,
            system=system,
            tools=tuple(tool or ()),
            summarizer=summarizer,
            principal=principal,
            max_output=max_output,
            thoughts=thoughts,
        ),
    )


def summarize(
    context: typer.Context,
    session: SessionId,
    summarizer: Annotated[
        SummarizerName,
        typer.Option(metavar="NAME", help="What summarizes: model, extractive or fallback."),
    ] = SummarizerName.MODEL,
    branch: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What this sub-agent is told.", show_default=False),
    ] = None,
    provider: Provider = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
    option: ModelOptions = None,
    window: Window = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Print a summary of what the model is told; nothing is stored."""
    from turnlog.infrastructure.cli.asking import Asked
    from turnlog.infrastructure.cli.talking import summarize_session

    asked = Asked(provider, model, base_url, tuple(option or ()), window)
    return summarize_session(
        settings_of(context, db, as_json), session, asked, summarizer=summarizer, branch=branch
    )

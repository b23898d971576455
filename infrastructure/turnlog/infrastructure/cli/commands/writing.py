"""The commands that add to logs."""

from __future__ import annotations

from pathlib import Path
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
    StrategyName,
    SummarizerName,
    Window,
    file_path,
    settings_of,
)


def import_(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            parser=file_path,
            metavar="FILE",
            help="JSON or JSONL files, or evidence bundles.",
            show_default=False,
        ),
    ],
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Do not guess the format: turnlog, claude_code, tau2, openai_chat or anthropic_messages.",
            show_default=False,
        ),
    ] = None,
    max_size: Annotated[
        int | None,
        typer.Option(
            "--max-size",
            min=1,
            metavar="BYTES",
            help="The largest JSON document or line that is read (default: 256 MiB).",
        ),
    ] = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Import conversations or bundles; a second run adds nothing."""
    from turnlog.infrastructure.cli.writing import import_files

    return import_files(settings_of(context, db, as_json), files, file_format, max_size)


def compact(
    context: typer.Context,
    session: SessionId,
    strategy: Annotated[
        StrategyName,
        typer.Option(metavar="NAME", help="What decides: window, sliding, turns, tokens or recursive."),
    ] = StrategyName.WINDOW,
    last_events: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="window: newest N messages (default: 20).")
    ] = None,
    last_turns: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="window: newest N turns.")
    ] = None,
    token_budget: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="window: what fits N tokens.")
    ] = None,
    max_events: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="sliding: newest N (default: 20).")
    ] = None,
    max_turns: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="turns: newest N turns (default: 10).")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="tokens: what fits N (default: 4000).")
    ] = None,
    keep_events: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="recursive: newest N (default: 10).")
    ] = None,
    summarizer: Annotated[
        SummarizerName,
        typer.Option(
            metavar="NAME",
            help="window, recursive: what summarizes the messages that leave: "
            "extractive, model, fallback (model, else extractive) or none.",
        ),
    ] = SummarizerName.NONE,
    provider: Provider = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
    option: ModelOptions = None,
    window: Window = None,
    branch: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only the messages of this sub-agent.", show_default=False),
    ] = None,
    when_turns: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only if the view has more than N turns.")
    ] = None,
    when_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only if the view has at least N tokens.")
    ] = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Reduce the view to its newest turns; the log keeps everything.

    What leaves the view is still found by `log` and `search`, and an earlier
    view by `view --at`. `turnlog strategies` says what each strategy keeps.

    Status 1: there was nothing to do, and the view is as it was.

    Example: turnlog compact @last --last-turns 5 --summarizer extractive
    """
    from turnlog.infrastructure.cli.asking import Asked
    from turnlog.infrastructure.cli.writing import compact_session

    sizes = {
        "--last-events": last_events,
        "--last-turns": last_turns,
        "--token-budget": token_budget,
        "--max-events": max_events,
        "--max-turns": max_turns,
        "--max-tokens": max_tokens,
        "--keep-events": keep_events,
    }
    return compact_session(
        settings_of(context, db, as_json),
        session,
        strategy=strategy,
        sizes={option: size for option, size in sizes.items() if size is not None},
        summarizer=summarizer,
        asked=Asked(provider, model, base_url, tuple(option or ()), window),
        branch=branch,
        when_turns=when_turns,
        when_tokens=when_tokens,
    )


def strategies(context: typer.Context, as_json: Json = False) -> int:
    """List the strategies of `compact`, and what each keeps."""
    from turnlog.infrastructure.cli.strategies import show_strategies

    return show_strategies(settings_of(context, None, as_json))

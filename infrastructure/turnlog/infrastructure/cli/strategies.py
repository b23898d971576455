"""The strategies that `compact` accepts: their sizes, and what they keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.table import Table

from turnlog.domain.archive import (
    RecursiveSummarizationCompactionStrategy,
    SlidingWindowCompactionStrategy,
    TokenCountCompactionStrategy,
    TurnWindowCompactionStrategy,
)
from turnlog.domain.compaction import CompactionStrategy, CompactionSummarizer
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy
from turnlog.infrastructure.cli.asking import Asked
from turnlog.infrastructure.cli.failures import CommandUsageError
from turnlog.infrastructure.cli.options import StrategyName, SummarizerName
from turnlog.infrastructure.cli.output import console, print_table, write_json
from turnlog.infrastructure.cli.settings import Settings, Status


@dataclass(frozen=True)
class _Size:
    """One way to say how much a strategy keeps; a budget is in tokens. Without a default it must be given."""

    strategy: StrategyName
    option: str
    default: int | None
    keeps: str
    make: Callable[[int, CompactionSummarizer | None], CompactionStrategy]
    is_budget: bool = False


_SUMMARIZING: Final = (StrategyName.WINDOW, StrategyName.RECURSIVE)


def _recursive(count: int, summarizer: CompactionSummarizer | None) -> CompactionStrategy:
    if summarizer is None:
        raise CommandUsageError("--strategy recursive needs --summarizer: extractive, model or fallback.")
    return RecursiveSummarizationCompactionStrategy(summarizer, count)


_SIZES: Final = (
    _Size(
        StrategyName.WINDOW,
        "--last-events",
        CompactionWindow.last_events().size,
        "the newest N messages, and what stands in front of the first turn",
        lambda count, summarizer: WindowCompactionStrategy(CompactionWindow.last_events(count), summarizer),
    ),
    _Size(
        StrategyName.WINDOW,
        "--last-turns",
        None,
        "the newest N turns, and what stands in front of the first turn",
        lambda count, summarizer: WindowCompactionStrategy(CompactionWindow.last_turns(count), summarizer),
    ),
    _Size(
        StrategyName.WINDOW,
        "--token-budget",
        None,
        "what fits N tokens together with what stands in front of the first turn",
        lambda count, summarizer: WindowCompactionStrategy(CompactionWindow.token_budget(count), summarizer),
        is_budget=True,
    ),
    _Size(
        StrategyName.SLIDING,
        "--max-events",
        SlidingWindowCompactionStrategy().max_events,
        "the newest N messages",
        lambda count, _: SlidingWindowCompactionStrategy(count),
    ),
    _Size(
        StrategyName.TURNS,
        "--max-turns",
        TurnWindowCompactionStrategy().max_turns,
        "the newest N turns, and what stands in front of the first turn",
        lambda count, _: TurnWindowCompactionStrategy(count),
    ),
    _Size(
        StrategyName.TOKENS,
        "--max-tokens",
        TokenCountCompactionStrategy().max_tokens,
        "what fits N tokens together with system message and summaries",
        lambda count, _: TokenCountCompactionStrategy(count),
        is_budget=True,
    ),
    _Size(
        StrategyName.RECURSIVE,
        "--keep-events",
        10,
        "the newest N messages behind a summary of all others; needs --summarizer",
        _recursive,
    ),
)

_ALWAYS: Final = (
    "Each cuts at the start of a turn only, and keeps the newest turn, the latest system message and earlier "
    "summaries."
)


def strategy_of(
    name: StrategyName, sizes: Mapping[str, int], summarizer: SummarizerName, asked: Asked
) -> CompactionStrategy:
    """The strategy in the size that these options give, or `CommandUsageError`."""
    size, count = _chosen(name, sizes)
    if summarizer is not SummarizerName.NONE and name not in _SUMMARIZING:
        raise CommandUsageError(
            f"--summarizer goes with --strategy {' or '.join(_SUMMARIZING)}, not with {name}."
        )
    return size.make(count, asked.summarizer(summarizer))


def budget_of(name: StrategyName, sizes: Mapping[str, int]) -> int | None:
    """The tokens that the view is to be reduced to; None when these options give another kind of size."""
    size, count = _chosen(name, sizes)
    return count if size.is_budget else None


def _chosen(name: StrategyName, sizes: Mapping[str, int]) -> tuple[_Size, int]:
    own = [size for size in _SIZES if size.strategy is name]
    for foreign in _SIZES:
        if foreign.option in sizes and foreign.strategy is not name:
            raise CommandUsageError(
                f"{foreign.option} goes with --strategy {foreign.strategy}; "
                f"{name} takes {', '.join(size.option for size in own)}."
            )
    given = [size for size in own if size.option in sizes]
    if len(given) > 1:
        raise CommandUsageError(f"Give one of {' and '.join(size.option for size in given)}.")
    size = given[0] if given else next(size for size in own if size.default)
    return size, sizes.get(size.option, size.default or 0)


def show_strategies(settings: Settings) -> int:
    """List what `compact` accepts."""
    if settings.json:
        write_json([_data(size) for size in _SIZES])
        return Status.DONE
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("STRATEGY", "SIZE"):
        table.add_column(name, no_wrap=True)
    table.add_column("DEFAULT", justify="right")
    table.add_column("KEEPS")
    for size in _SIZES:
        default = "" if size.default is None else f"{size.default:,}"
        table.add_row(size.strategy.value, f"{size.option} N", default, size.keeps)
    print_table(table)
    out = console()
    out.print(_ALWAYS, style="dim", soft_wrap=not out.is_terminal)
    return Status.DONE


def _data(size: _Size) -> dict[str, Any]:
    return {
        "strategy": size.strategy.value,
        "option": size.option,
        "default": size.default,
        "keeps": size.keeps,
    }

"""The chart of tokens in the view and in the log: its geometry, as the page's SVG draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from turnlog.infrastructure.report.following import Measures, Step
from turnlog.infrastructure.visible import visible

MAX_POINTS: Final = 1_000
"""Points of a line at most."""

MAX_TICKS: Final = 250
"""Places at which boundaries are marked at most; those that fall together share one."""

MAX_ROWS: Final = 100
"""Rows of the table at most."""

WIDTH: Final = 1_000
HEIGHT: Final = 100
"""The size of a panel in units of its own; the page stretches it."""

_SHARED_SCALE = 8
"""The log may be so many times the view; beyond that both get a panel with a scale of its own."""


class Point(NamedTuple):
    """A value that holds from this version on."""

    version: int
    value: int


@dataclass(frozen=True)
class Level:
    """A grid line: how far up it is (percent from the top) and what it stands for."""

    top: str
    label: str


@dataclass(frozen=True)
class Line:
    """A step line as the `d` of a path. `kind` is `view` or `log`."""

    kind: str
    path: str


@dataclass(frozen=True)
class Panel:
    """One scale with its lines."""

    label: str
    lines: tuple[Line, ...]
    levels: tuple[Level, ...]


@dataclass(frozen=True)
class Tick:
    """A mark on the axis of versions, in percent from the left."""

    left: str
    title: str


@dataclass(frozen=True)
class Row:
    """A row of the table that says the same."""

    version: int
    what: str
    in_view: int
    in_log: int


@dataclass(frozen=True)
class Chart:
    """Everything that is drawn, and the same in words."""

    panels: tuple[Panel, ...]
    boundaries: tuple[Tick, ...]
    calls: tuple[Tick, ...]
    versions: tuple[Tick, ...]
    summary: str
    rows: tuple[Row, ...]
    rows_left_out: int


def chart_of(measures: Measures) -> Chart:
    """The chart of a whole log."""
    return Chart(
        panels=_panels(measures),
        boundaries=_boundary_ticks(measures),
        calls=_call_ticks(measures),
        versions=tuple(Tick(_percent(v, measures.head), f"{v:,}") for v in _round_versions(measures.head)),
        summary=summary_of(measures),
        rows=_rows(measures),
        rows_left_out=max(0, len(measures.boundaries) - MAX_ROWS),
    )


def reduced(values: Sequence[int], points: int = MAX_POINTS) -> list[Point]:
    """The values by version, cut to so many points: the least and the greatest of each column, in order."""
    if len(values) <= points:
        return [Point(version, value) for version, value in enumerate(values)]
    columns = points // 2
    kept: list[Point] = []
    for column in range(columns):
        span = range(len(values) * column // columns, len(values) * (column + 1) // columns)
        least, greatest = min(span, key=values.__getitem__), max(span, key=values.__getitem__)
        kept.extend(Point(version, values[version]) for version in sorted({least, greatest}))
    return kept


def step_path(points: Sequence[Point], last: int, scale: int) -> str:
    """A path that keeps each value until the next one; `last` is the version at the right edge."""
    commands: list[str] = []
    height = None
    for version, value in points:
        y = _number(HEIGHT - HEIGHT * value / scale)
        x = _number(WIDTH * version / max(1, last))
        if height is None:
            commands.append(f"M0,{y}")
        elif y != height:
            commands.append(f"H{x}V{y}")
        height = y
    return "".join(commands) + f"H{WIDTH}"


def summary_of(measures: Measures) -> str:
    """What the chart shows, in one or two sentences."""
    if not measures.messages:
        return "Nothing has been said yet."
    log, view = measures.in_log[-1], measures.in_view[-1]
    said = (
        f"{_count(measures.messages, 'message')} of about {log:,} tokens were said; "
        f"the model is now told about {view:,} tokens"
    )
    if log:
        said += f" ({_share(view, log)})"
    peak = max(measures.in_view)
    where = measures.in_view.index(peak)
    said += f". The most it was told is about {peak:,}, at version {where:,}."
    count = len(measures.boundaries)
    if not count:
        return said + " Nothing was compacted."
    saved = sum(max(0, step.before - step.after) for step in measures.boundaries)
    return said + f" {_count(count, 'compaction')} took about {saved:,} tokens out of the view."


def _panels(measures: Measures) -> tuple[Panel, ...]:
    view, log = max(measures.in_view, default=0), max(measures.in_log, default=0)
    if log <= _SHARED_SCALE * max(1, view):
        return (_panel("Tokens", measures, ("log", "view"), max(view, log)),)
    return (
        _panel("In the log", measures, ("log",), log),
        _panel("In the view", measures, ("view",), view),
    )


def _panel(label: str, measures: Measures, kinds: tuple[str, ...], most: int) -> Panel:
    step = _round_step(most)
    scale = step * max(1, -(-most // step))
    values = {"log": measures.in_log, "view": measures.in_view}
    lines = (Line(kind, step_path(reduced(values[kind]), measures.head, scale)) for kind in kinds)
    levels = (
        Level(_percent(scale - value, scale), compact_number(value)) for value in range(step, scale + 1, step)
    )
    return Panel(label, tuple(lines), tuple(levels))


def _round_step(most: int, lines: int = 3) -> int:
    """A step of 1, 2 or 5 times a power of ten that reaches `most` in about so many."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power * lines >= most:
                return factor * power
        power *= 10


def _round_versions(head: int) -> list[int]:
    """Versions to be named below the curve, each once: round ones, and the newest.

    >>> _round_versions(4), _round_versions(0)
    ([0, 1, 2, 3, 4], [0])
    """
    step = _round_step(head, 6)
    return [version for version in range(0, head, step) if head - version >= step // 2 or not version] + [
        head
    ]


def _boundary_ticks(measures: Measures) -> tuple[Tick, ...]:
    columns: dict[int, list[Step]] = {}
    for step in measures.boundaries:
        columns.setdefault(step.version * MAX_TICKS // (measures.head + 1), []).append(step)
    return tuple(Tick(_percent(steps[0].version, measures.head), _about(steps)) for steps in columns.values())


def _about(steps: Sequence[Step]) -> str:
    first, last = steps[0], steps[-1]
    if len(steps) == 1:
        how = f", {visible(first.strategy)}" if first.strategy else ""
        return (
            f"Compaction at version {first.version:,}: {_count(first.covered, 'message')} left the view, "
            f"{first.before:,} to {first.after:,} tokens{how}"
        )
    covered = sum(step.covered for step in steps)
    return (
        f"{len(steps):,} compactions from version {first.version:,} to {last.version:,}: "
        f"{_count(covered, 'message')} left the view"
    )


def _call_ticks(measures: Measures) -> tuple[Tick, ...]:
    columns: dict[int, list[int]] = {}
    for version in measures.calls:
        columns.setdefault(version * MAX_TICKS // (measures.head + 1), []).append(version)
    return tuple(
        Tick(
            _percent(versions[0], measures.head),
            f"Call at version {versions[0]:,}"
            if len(versions) == 1
            else f"{len(versions):,} calls from here on",
        )
        for versions in columns.values()
    )


def _rows(measures: Measures) -> tuple[Row, ...]:
    steps = measures.boundaries[-MAX_ROWS:]
    rows = [
        Row(
            step.version,
            f"Compaction, {_count(step.covered, 'message')} left the view",
            step.after,
            measures.in_log[step.until],
        )
        for step in steps
    ]
    rows.append(Row(measures.head, "Newest version", measures.in_view[-1], measures.in_log[-1]))
    return tuple(rows)


def compact_number(value: int) -> str:
    """A short form of a round number.

    >>> compact_number(1500), compact_number(20_000), compact_number(3_000_000)
    ('1.5k', '20k', '3M')
    """
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{_number(value / size)}{unit}"
    return str(value)


def _percent(part: int, whole: int) -> str:
    return f"{_number(100 * part / max(1, whole))}%"


def _share(part: int, whole: int) -> str:
    share = 100 * part / whole
    return f"{share:.0f}%" if share >= 1 or not part else "under 1%"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"

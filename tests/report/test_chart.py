from __future__ import annotations

import re
from random import Random

import pytest

from turnlog.infrastructure.report.chart import (
    MAX_POINTS,
    MAX_ROWS,
    MAX_TICKS,
    Point,
    chart_of,
    reduced,
    step_path,
)
from turnlog.infrastructure.report.following import Measures, Step


def measures(in_view: list[int], in_log: list[int], boundaries: list[Step] | None = None) -> Measures:
    return Measures(
        costs=[0] * len(in_view),
        in_view=in_view,
        in_log=in_log,
        boundaries=boundaries or [],
        messages=len(in_view),
        windows=[(0, len(in_view) - 1)],
    )


def test_a_short_line_keeps_every_point() -> None:
    assert reduced([5, 0, 7]) == [Point(0, 5), Point(1, 0), Point(2, 7)]


@pytest.mark.parametrize("length", [1_001, 4_999, 100_003])
def test_a_long_line_keeps_the_least_and_the_greatest_of_every_column(length: int) -> None:
    values = [Random(length + place).randint(0, 10**6) for place in range(length)]
    points = reduced(values)
    assert len(points) <= MAX_POINTS
    assert points == sorted(points)
    assert {point.value for point in points} >= {min(values), max(values)}
    for place in range(MAX_POINTS // 2):
        span = range(length * place * 2 // MAX_POINTS, length * (place + 1) * 2 // MAX_POINTS)
        kept = [point.value for point in points if point.version in span]
        assert (min(kept), max(kept)) == (min(values[v] for v in span), max(values[v] for v in span))


def test_a_step_line_keeps_a_value_until_the_next_one() -> None:
    points = [Point(0, 0), Point(1, 50), Point(2, 50), Point(4, 100)]
    assert step_path(points, 4, 100) == "M0,100H250V50H1000V0H1000"


def test_view_and_log_share_one_scale() -> None:
    (panel,) = chart_of(measures([0, 10, 5], [0, 10, 20])).panels
    assert [line.kind for line in panel.lines] == ["log", "view"]


def test_a_log_that_dwarfs_the_view_gets_a_panel_of_its_own() -> None:
    chart = chart_of(measures([0, 10, 5], [0, 500, 1_000]))
    assert [[line.kind for line in panel.lines] for panel in chart.panels] == [["log"], ["view"]]


@pytest.mark.parametrize("most", [0, 1, 3, 7, 99, 100, 101, 123_456, 10**9])
def test_grid_lines_are_few_and_nothing_rises_above_them(most: int) -> None:
    (panel,) = chart_of(measures([0, most], [0, most])).panels
    assert 1 <= len(panel.levels) <= 3
    heights = [float(y) for y in re.findall(r"[V,]([\d.]+)", panel.lines[0].path)]
    assert all(0 <= height <= 100 for height in heights)


def test_a_boundary_is_marked_at_its_version_and_says_what_it_did() -> None:
    chart = chart_of(measures([0] * 101, [0] * 101, [Step(25, 27, 900, 300, 4, "window")]))
    (tick,) = chart.boundaries
    assert tick.left == "25%"
    assert tick.title == "Compaction at version 25: 4 messages left the view, 900 to 300 tokens, window"


def test_a_strategy_cannot_steer_the_title_of_a_mark() -> None:
    chart = chart_of(measures([0] * 3, [0] * 3, [Step(1, 1, 9, 3, 1, "\u202ewindow")]))
    assert "\u202e" not in chart.boundaries[0].title


def test_boundaries_that_fall_together_share_one_mark() -> None:
    steps = [Step(version, version, 2, 1, 1, None) for version in range(1, 10_000)]
    chart = chart_of(measures([0] * 10_000, [0] * 10_000, steps))
    assert len(chart.boundaries) <= MAX_TICKS
    assert chart.boundaries[1].title.startswith("40 compactions from version 40 to 79: 40 messages")


def test_the_table_holds_the_newest_boundaries_and_says_how_many_are_left_out() -> None:
    steps = [Step(version, version, 2, 1, 1, None) for version in range(1, 151)]
    chart = chart_of(measures([0] * 200, [0] * 200, steps))
    assert len(chart.rows) == MAX_ROWS + 1
    assert (chart.rows[0].version, chart.rows_left_out) == (51, 50)


def test_the_summary_says_what_is_told_now_and_what_the_most_was() -> None:
    chart = chart_of(measures([0, 90, 30], [0, 90, 120], [Step(2, 2, 90, 30, 2, None)]))
    assert chart.summary == (
        "3 messages of about 120 tokens were said; the model is now told about 30 tokens (25%). The most it "
        "was told is about 90, at version 1. 1 compaction took about 60 tokens out of the view."
    )


def test_the_summary_of_nothing_says_so() -> None:
    empty = measures([0], [0])
    empty.messages = 0
    assert chart_of(empty).summary == "Nothing has been said yet."

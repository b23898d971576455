"""Progress of long work: a bar on a terminal, nothing elsewhere or where no escape sequences are wanted."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from turnlog.infrastructure.cli.output import console


@contextmanager
def progress(what: str, total: int, *, quiet: bool = False) -> Generator[Callable[[int], object]]:
    """A function that is told how much more is done; the bar stands on stderr and goes away at the end."""
    err = console(stderr=True)
    if quiet or not err.is_terminal or err.color_system is None:
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)

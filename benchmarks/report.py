"""What a report of 5,000 messages costs: writing it, opening it in a browser, and moving its slider.

Run it with `python -m benchmarks.report`; `--quick` takes a tenth of the messages. The browser is the one
that TURNLOG_CHROMIUM names, else one on the path.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.report.browser import Browser, Page, executable

from benchmarks.recall import Texts
from turnlog.application import SessionService
from turnlog.domain import CompactionWindow, Message, TokenCountTrigger, WindowCompactionStrategy
from turnlog.infrastructure.report import write_report

SESSION = "report"
MOVES = 60
RUNS = 5

FIRST_FRAME = """
new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
  const [shown] = performance.getEntriesByName("first-contentful-paint");
  done([shown ? shown.startTime : 0, performance.now()]);
})))
"""
"""Milliseconds from the beginning of the navigation to the first text, and to the frame behind the script."""

MOVE = """
(async () => {
  const slider = document.getElementById("slider");
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const times = [];
  for (const share of %s) {
    await frame();
    slider.value = Math.round(Number(slider.max) * share);
    const begin = performance.now();
    slider.dispatchEvent(new Event("input"));
    await frame();
    await new Promise((done) => {
      const { port1, port2 } = new MessageChannel();
      port2.onmessage = done;
      port1.postMessage(0);
    });
    times.push(performance.now() - begin);
  }
  return times;
})()
"""
"""Milliseconds from each move of the slider until the frame that shows it is drawn."""


def fill(sessions: SessionService, messages: int, *, compact: bool) -> None:
    """A conversation of about 500 characters a message, compacted as it grows or never."""
    texts = Texts()
    sessions.create(SESSION, metadata={"title": f"{messages:,} messages"})
    sessions.append_message(SESSION, Message.system("You look after parcels."))
    trigger, strategy = (
        TokenCountTrigger(40_000),
        WindowCompactionStrategy(CompactionWindow.token_budget(20_000)),
    )
    for first in range(1, messages, 50):
        batch = range(first, min(messages, first + 50))
        sessions.append_events(
            SESSION, [(Message.user if number % 2 else Message.assistant)(texts()) for number in batch]
        )
        if compact:
            sessions.compact(SESSION, trigger, strategy)


def opened(browser: Browser, file: Path) -> tuple[Page, float, float]:
    """The page, and the seconds to its first frame and to the one behind its script."""
    page = browser.page()
    page.open(file)
    first, drawn = page.run(FIRST_FRAME)
    return page, first / 1_000, drawn / 1_000


def moved(page: Page, mode: str) -> list[float]:
    """Milliseconds of moves all over the slider, in one of its modes."""
    page.run(f"document.querySelector('input[name=mode][value={mode}]').click()")
    page.settle()
    far = [(place * 37 % MOVES) / (MOVES - 1) for place in range(MOVES)]
    near = [0.5 + place / 10_000 for place in range(MOVES)]
    times: list[float] = page.run(MOVE % [*far, *near])
    return times


def report(label: str, value: str, limit: str = "", ok: bool | None = None) -> None:
    """One line of the table."""
    print(f"| {label:<56} | {value:>9} | {limit:>7} | {'' if ok is None else 'ok' if ok else 'MISSED':<6} |")


def run(messages: int) -> None:
    """Measure and print."""
    path = executable()
    if path is None:
        raise SystemExit("There is no Chromium: install one, or name it in TURNLOG_CHROMIUM.")
    print(f"| {'what':<56} | {'worst':>9} | {'limit':>7} | {'':<6} |")
    print(f"|{'-' * 58}|{'-' * 11}|{'-' * 9}|{'-' * 8}|")
    for compact in (True, False):
        kind = f"{messages:,} messages, {'compacted' if compact else 'never compacted'}"
        with TemporaryDirectory() as folder, SessionService() as sessions:
            fill(sessions, messages, compact=compact)
            begin = time.perf_counter()
            (file,) = write_report(sessions, SESSION, Path(folder) / "report.html").files
            report(f"{kind}: written (s)", f"{time.perf_counter() - begin:.2f}")
            report(f"{kind}: size (MB)", f"{file.stat().st_size / 1e6:.1f}")
            with Browser(path) as browser:
                frames: list[float] = []
                for _ in range(RUNS):
                    page, _, drawn = opened(browser, file)
                    frames.append(drawn)
                    page.close()
                report(f"{kind}: opened (s)", f"{max(frames):.2f}", "2", max(frames) < 2)
                page, _, _ = opened(browser, file)
                for mode, what in (("log", "whole log"), ("told", "only told")):
                    times = moved(page, mode)
                    report(f"{kind}: slider, {what} (ms)", f"{max(times):.0f}", "100", max(times) < 100)


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    run(500 if parser.parse_args().quick else 5_000)


if __name__ == "__main__":
    main()

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from tests.report.browser import Browser, Page, executable

from turnlog.application import SessionService
from turnlog.infrastructure.report import write_report

_NO_BROWSER = "no Chromium"


class OpenReport(Protocol):
    """Writes the report of a session, opens it, and gives the page."""

    def __call__(
        self,
        session_id: str,
        fragment: str = "",
        *,
        width: int = 1440,
        scheme: str = "light",
        branch: str | None = None,
    ) -> Page: ...


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if any(_NO_BROWSER in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(
            "*** NOT TESTED: the report in a browser, for there is no Chromium. Install one, or name it in "
            "TURNLOG_CHROMIUM. ***",
            red=True,
            bold=True,
        )


@pytest.fixture
def sessions() -> Iterator[SessionService]:
    with SessionService() as service:
        yield service


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests; tests that need it are skipped where there is none."""
    path = executable()
    if path is None:
        pytest.skip(_NO_BROWSER)
    with Browser(path) as running:
        yield running


@pytest.fixture
def open_report(browser: Browser, sessions: SessionService, tmp_path: Path) -> Iterator[OpenReport]:
    pages: list[Page] = []

    def opened(
        session_id: str,
        fragment: str = "",
        *,
        width: int = 1440,
        scheme: str = "light",
        branch: str | None = None,
    ) -> Page:
        written = write_report(sessions, session_id, tmp_path / "report.html", replace=True, branch=branch)
        page = browser.page(width=width)
        pages.append(page)
        page.color_scheme(scheme)
        page.open(written.files[0], fragment)
        return page

    yield opened
    for page in pages:
        page.close()

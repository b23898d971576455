"""What can go wrong when a report is written."""

from __future__ import annotations

from pathlib import Path

from turnlog.domain.errors import TurnlogError


class ReportError(TurnlogError):
    """The root of what can go wrong with a report."""


class ReportExistsError(ReportError):
    """A file of the report is there already."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{str(path)!r} exists already. Name another file, or replace it with --force.")
        self.path = path


class ReportExtraMissingError(ReportError):
    """What makes the page is not installed."""

    def __init__(self) -> None:
        super().__init__("A report needs the extra `report`: pip install 'turnlog[report]'")

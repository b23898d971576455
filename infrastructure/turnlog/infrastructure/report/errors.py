"""What can go wrong when a report is written."""

from __future__ import annotations

from turnlog.domain.errors import TurnlogError
from turnlog.infrastructure.whole_files import FileTakenError


class ReportError(TurnlogError):
    """The root of what can go wrong with a report."""


class ReportExistsError(ReportError, FileTakenError):
    """A file of the report is there already."""


class ReportExtraMissingError(ReportError):
    """What makes the page is not installed."""

    def __init__(self) -> None:
        super().__init__("A report needs the extra `report`: pip install 'turnlog[report]'")

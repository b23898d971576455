"""A session as one HTML page that needs no network."""

from turnlog.infrastructure.report.errors import ReportError, ReportExistsError, ReportExtraMissingError
from turnlog.infrastructure.report.writing import WrittenReport, write_report

__all__ = ["ReportError", "ReportExistsError", "ReportExtraMissingError", "WrittenReport", "write_report"]

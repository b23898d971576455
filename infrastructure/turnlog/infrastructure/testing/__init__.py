"""Contracts that a store of your own can be held to, as classes of tests for pytest."""

from turnlog.infrastructure.testing.directory import DirectoryContract
from turnlog.infrastructure.testing.log_and_view import LogAndViewContract
from turnlog.infrastructure.testing.materialised_view import MaterialisedViewContract
from turnlog.infrastructure.testing.recall import RecallContract

__all__ = ["DirectoryContract", "LogAndViewContract", "MaterialisedViewContract", "RecallContract"]

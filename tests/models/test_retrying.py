"""How long is waited, and what a server asks for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from turnlog.domain.errors import InvalidSettingError
from turnlog.infrastructure.models import Limits, RetryPolicy
from turnlog.infrastructure.models.retrying import is_temporary, retry_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_these_statuses_are_worth_another_attempt(status: int) -> None:
    assert is_temporary(status)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 422])
def test_these_are_not(status: int) -> None:
    assert not is_temporary(status)


def test_pauses_grow_up_to_their_bound() -> None:
    policy = RetryPolicy(retries=6, backoff=1, max_backoff=8)
    assert [policy.pause(failures, None, 1) for failures in range(1, 8)] == [1, 2, 4, 8, 8, 8, None]


def test_a_pause_is_random_between_half_and_the_whole() -> None:
    assert [RetryPolicy(backoff=1).pause(1, None, chance) for chance in (0, 0.5, 1)] == [0.5, 0.75, 1]


def test_a_server_is_waited_for_as_long_as_it_says() -> None:
    assert RetryPolicy().pause(1, 20, 0.5) == 20


def test_a_server_that_says_to_wait_for_too_long_is_not_asked_again() -> None:
    assert RetryPolicy(max_retry_after=60).pause(1, 61, 0.5) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "0"}, 0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "0", "retry-after": "1"}, 0),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:30 GMT"}, 30),
        ({"retry-after": "Wed, 31 Dec 2025 23:59:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Thu, 01 Jan 99999999999999999999 00:00:00 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_what_a_server_asks_for_is_understood(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@pytest.mark.parametrize("settings", [{"retries": -1}, {"backoff": -1}, {"max_retry_after": -1}])
def test_a_policy_refuses_what_makes_no_sense(settings: dict[str, int]) -> None:
    with pytest.raises(InvalidSettingError):
        RetryPolicy(**settings)


@pytest.mark.parametrize("name", ["connect", "read", "total", "response_bytes"])
def test_limits_are_larger_than_nothing(name: str) -> None:
    with pytest.raises(InvalidSettingError):
        Limits(**{name: 0})

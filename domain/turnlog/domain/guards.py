"""Checks of what callers may give whose code is not typed: refused at once, with what is meant instead."""

from __future__ import annotations

from math import isnan

from turnlog.domain.errors import InvalidSettingError, shown


def require_kind(name: str, value: object, kind: type[object] | tuple[type[object], ...], meant: str) -> None:
    """`InvalidSettingError` for a value of another kind; `meant` says what is, as in `a timedelta`."""
    if not isinstance(value, kind):
        raise InvalidSettingError(f"{name} is {meant}, not {shown(value)}.")


def require_methods(name: str, value: object, methods: tuple[str, ...], meant: str) -> None:
    """`InvalidSettingError` for a value without these methods, and for a class in place of an object."""
    if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods):
        raise InvalidSettingError(f"{name} is {meant}, not {shown(value)}.")


def require_callable(name: str, value: object, meant: str) -> None:
    """`InvalidSettingError` for what cannot be called."""
    if not callable(value):
        raise InvalidSettingError(f"{name} is {meant}, not {shown(value)}.")


def require_number(name: str, value: object, *, least: float = 0, above: bool = False) -> None:
    """`InvalidSettingError` for what is no number, or too small."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not isnan(value):
        is_enough = value > least if above else value >= least
    else:
        is_enough = False
    if not is_enough:
        wanted = f"above {least:g}" if above else f"of at least {least:g}"
        raise InvalidSettingError(f"{name} is a number {wanted}, not {shown(value)}.")

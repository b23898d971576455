"""JSON values that cannot be changed in place, so that a remembered event stays what the log holds."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NoReturn, cast

from turnlog.domain.messages import Message, Part


def _refused(*_: object, **__: object) -> NoReturn:
    raise TypeError("What a log holds is read-only: change a copy of it (copy.deepcopy).")


_refuse: Any = _refused


class FrozenDict(dict[str, Any]):
    """A dict that refuses changes; a copy of it is a plain dict."""

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {name: deepcopy(value, memo) for name, value in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class FrozenList(list[Any]):
    """A list that refuses changes; a copy of it is a plain list."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [deepcopy(value, memo) for value in self]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def frozen(value: Any) -> Any:
    """The JSON value with every dict and list of it frozen."""
    if isinstance(value, dict):
        return FrozenDict((name, frozen(item)) for name, item in cast("dict[str, Any]", value).items())
    if isinstance(value, list):
        return FrozenList(map(frozen, cast("Sequence[Any]", value)))
    return value


def freeze(message: Message) -> Message:
    """The message itself, with the free-form values in it frozen."""
    fields = vars(message)
    for name in ("shape", "metadata"):
        if fields[name] is not None:
            fields[name] = frozen(fields[name])
    _freeze_extra(message)
    for part in message.parts:
        _freeze_part(part)
    return message


def _freeze_part(part: Part) -> None:
    _freeze_extra(part)
    response = vars(part).get("response")
    if isinstance(response, tuple):
        for inner in cast("tuple[Part, ...]", response):
            _freeze_part(inner)


def _freeze_extra(model: Message | Part) -> None:
    extra = model.__pydantic_extra__
    if extra:
        extra.update({name: frozen(value) for name, value in extra.items()})

"""Tools: Python functions that a model may call, and what becomes of a call."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, Self, TypeAlias, cast, get_args, get_type_hints, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, PydanticJsonSchemaWarning
from pydantic_core import PydanticSerializationError, core_schema, to_jsonable_python

from turnlog.application.chat.errors import MalformedArgumentsError
from turnlog.application.chat.model import ToolDefinition
from turnlog.application.chat.recording import unstored
from turnlog.domain.errors import InvalidSettingError, NotJsonError, shown
from turnlog.domain.guards import require_kind, require_number
from turnlog.domain.json_text import checked_json_text
from turnlog.domain.messages import Message, Part

ResultContent: TypeAlias = str | tuple[Part, ...]
"""The result of a call as a message holds it: text, or parts."""


@dataclass(frozen=True)
class Awaiting:
    """What a tool returns whose result comes later: from a person, or from work that takes long.

    A `note` is told to the model in the meantime. The tool has to say beforehand that it may do so, by its
    return type or by `Tool.of(…, awaits=True)`, because its calls are marked when they are stored.
    """

    note: str = ""


@dataclass(frozen=True)
class ToolContext:
    """Where a call comes from. A tool gets it as the parameter that is annotated with this type."""

    session_id: str
    branch: str | None = None
    principal: str | None = None
    call_id: str | None = None


@runtime_checkable
class DescribedTool(Protocol):
    """A tool that brings its own schema, as `ConversationSearch` does."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    def __call__(self, arguments: Mapping[str, Any], /) -> object:
        """The result for the arguments of a model."""
        ...


@dataclass(frozen=True)
class Tool:
    """A tool of a chat: what the model is told, and what is called. Make it with `Tool.of`.

    A call of a tool that `needs_approval` is stored and waits for `approve`, `answer` or `abandon`; one that
    `awaits` may return `Awaiting`. `time_limit` is in seconds; without one that of the chat counts.
    """

    definition: ToolDefinition
    bind: Callable[[str, ToolContext], Callable[[], object]]
    """The call with these arguments, ready to be made; raises `MalformedArgumentsError`."""
    needs_approval: bool = False
    awaits: bool = False
    time_limit: float | None = None
    is_async: bool = False

    @property
    def name(self) -> str:
        """The name that the model uses."""
        return self.definition.name

    @classmethod
    def of(
        cls,
        tool: Callable[..., object] | DescribedTool | Tool,
        *,
        name: str | None = None,
        description: str | None = None,
        needs_approval: bool = False,
        awaits: bool = False,
        time_limit: float | None = None,
    ) -> Tool:
        """A tool made of a function: its name, its docstring, and a schema from its annotations.

        Also taken is a tool that brings its own schema. Raises `InvalidSettingError` for a function whose
        parameters have no JSON schema.
        """
        if isinstance(tool, Tool):
            return tool
        if time_limit is not None:
            require_number("`time_limit` (seconds)", time_limit, above=True)
        if isinstance(tool, DescribedTool):
            made = ToolDefinition(name or tool.name, description or tool.description, tool.parameters)
            return cls(made, partial(_bind_described, tool), needs_approval, awaits, time_limit)
        if not callable(tool):  # pyright: ignore[reportUnnecessaryComparison] # callers may be untyped
            raise InvalidSettingError(f"A tool is a function, or `Tool.of` one, not {shown(tool)}.")
        function = _Function.of(tool)
        if name is None and function.name == "<lambda>":
            raise InvalidSettingError(
                "A lambda has no name that a model could use: define a function, or name it by "
                "Tool.of(…, name='find', description='…')."
            )
        definition = ToolDefinition(
            name or function.name, description or inspect.getdoc(tool) or "", function.parameters
        )
        return cls(
            definition,
            function.bind,
            needs_approval,
            awaits or function.awaits,
            time_limit,
            function.is_async,
        )


class ToolSet:
    """The tools of a chat by their names."""

    def __init__(self, tools: Sequence[Callable[..., object] | DescribedTool | Tool]) -> None:
        require_kind("`tools`", tools, Sequence, "a list of functions, as in tools=[find]")
        self._tools: dict[str, Tool] = {}
        for tool in map(Tool.of, tools):
            if tool.name in self._tools:
                raise InvalidSettingError(f"Two tools are named {tool.name!r}: give one another name.")
            self._tools[tool.name] = tool
        self.definitions = tuple(tool.definition for tool in self._tools.values())
        self.events = (unstored(Message.system(self._text()), synthetic=True),) if self._tools else ()
        """What stands for the schemas where tokens are counted; nothing without tools."""

    def find(self, name: str) -> Tool | None:
        """The tool of this name."""
        return self._tools.get(name)

    @property
    def names(self) -> str:
        """The names, for a message."""
        return ", ".join(sorted(self._tools)) or "none"

    def _text(self) -> str:
        return json.dumps(
            [[one.name, one.description, dict(one.parameters)] for one in self.definitions], default=str
        )


def result_content(value: object) -> ResultContent:
    """What a tool returned, as a result holds it. Raises `NotJsonError` for what JSON cannot say."""
    match value:
        case None:
            return ""
        case str():
            return value
        case Part():
            return (value,)
        case list() | tuple() if value and all(isinstance(one, Part) for one in cast("list[object]", value)):
            return tuple(cast("Sequence[Part]", value))
        case _:
            try:
                return checked_json_text(to_jsonable_python(value), "the result")
            except PydanticSerializationError:
                raise NotJsonError("the result", f"a value of type {type(value).__name__}") from None


class _Schema(GenerateJsonSchema):
    """A schema without the titles that pydantic makes of names."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the signature is pydantic's
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Any]:
        made = super().model_schema(schema)
        made.pop("title", None)
        return made


_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY,)
_UNNAMED: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class _Function:
    """A function as a tool. Parameters become fields `p0`, `p1` … with their names as aliases."""

    function: Callable[..., object]
    arguments: type[BaseModel]
    names: tuple[str, ...]
    positional: int
    context_name: str | None
    awaits: bool
    is_async: bool
    name: str
    parameters: Mapping[str, Any]

    @classmethod
    def of(cls, function: Callable[..., object]) -> Self:
        target = _target(function)
        name = getattr(target, "__name__", type(function).__name__)
        try:
            hints = get_type_hints(target, include_extras=True)
            signature = inspect.signature(function)
        except (NameError, TypeError, ValueError) as error:
            raise InvalidSettingError(f"The annotations of tool {name!r} cannot be read: {error}.") from error
        returned = hints.pop("return", None)
        found = {
            one.name: (hints.get(one.name, Any), one)
            for one in signature.parameters.values()
            if hints.get(one.name) is not ToolContext
        }
        for one in signature.parameters.values():
            if one.kind in _UNNAMED:
                raise InvalidSettingError(f"Tool {name!r} takes *{one.name}: name each parameter instead.")
        arguments = _arguments_model(name, found)
        contexts = [one for one in signature.parameters if hints.get(one) is ToolContext]
        return cls(
            function=function,
            arguments=arguments,
            names=tuple(found),
            positional=sum(one.kind in _POSITIONAL for _, one in found.values()),
            context_name=contexts[0] if contexts else None,
            awaits=returned is Awaiting or Awaiting in get_args(returned),
            is_async=inspect.iscoroutinefunction(target),
            name=name,
            parameters=_json_schema(name, arguments),
        )

    def bind(self, arguments: str, context: ToolContext) -> Callable[[], object]:
        try:
            parsed = self.arguments.model_validate_json(arguments.strip() or "{}")
        except ValidationError as error:
            raise MalformedArgumentsError(_reasons(error)) from error
        except ValueError as error:  # a lone surrogate
            raise MalformedArgumentsError("they are no valid text") from error
        values = [getattr(parsed, f"p{place}") for place in range(len(self.names))]
        named = dict(zip(self.names[self.positional :], values[self.positional :], strict=True))
        if self.context_name:
            named[self.context_name] = context
        return partial(self.function, *values[: self.positional], **named)


def _target(function: Callable[..., object]) -> Any:
    """What holds the annotations of a callable."""
    if isinstance(function, partial):
        return _target(cast("partial[object]", function).func)
    return function if inspect.isroutine(function) else type(function).__call__


def _arguments_model(
    name: str, parameters: Mapping[str, tuple[object, inspect.Parameter]]
) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for place, (known_as, (hint, parameter)) in enumerate(parameters.items()):
        given = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[f"p{place}"] = (hint, Field(given, alias=known_as))
    config = ConfigDict(extra="forbid")
    try:
        return create_model("Arguments", __config__=config, **fields)
    except PydanticUserError as error:
        raise InvalidSettingError(
            f"A parameter of tool {name!r} has no JSON schema: {_first_line(error)}"
        ) from error


def _json_schema(name: str, arguments: type[BaseModel]) -> Mapping[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", PydanticJsonSchemaWarning
            )  # a default that is no JSON is left out
            return arguments.model_json_schema(schema_generator=_Schema)
    except PydanticUserError as error:
        raise InvalidSettingError(
            f"A parameter of tool {name!r} has no JSON schema: {_first_line(error)}"
        ) from error


def _bind_described(tool: DescribedTool, arguments: str, _: ToolContext) -> Callable[[], object]:
    try:
        parsed = json.loads(arguments.strip() or "{}")
    except (ValueError, RecursionError):
        raise MalformedArgumentsError("they are no JSON") from None
    if not isinstance(parsed, dict):
        raise MalformedArgumentsError("they are no JSON object")
    return partial(tool, cast("dict[str, Any]", parsed))


def _reasons(error: ValidationError) -> str:
    """Where and why, for the model that wrote them."""
    found = error.errors(include_url=False, include_input=False, include_context=False)[:5]
    return "; ".join(
        f"{'.'.join(map(str, one['loc']))}: {one['msg']}"
        if one["loc"]
        else _as_a_whole(one["type"], one["msg"])
        for one in found
    )


def _as_a_whole(kind: str, said: str) -> str:
    """What a parser says of the arguments as a whole, in words that fit them."""
    if kind == "json_invalid":
        return f"they are no JSON ({said.removeprefix('Invalid JSON: ')})"
    return "they are no JSON object" if kind == "model_type" else "they are no valid text"


def _first_line(error: PydanticUserError) -> str:
    return error.message.partition("\n")[0]

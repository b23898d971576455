"""Messages and their parts, with the names of the OpenTelemetry GenAI conventions.

Types of part that are not known here are kept as they are, and so are further fields of parts and messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, cast

from pydantic import (
    BaseModel,
    Discriminator,
    ModelWrapValidatorHandler,
    Tag,
    ValidationError,
    model_validator,
)

from turnlog.domain.errors import InvalidMessageError, InvalidPartError
from turnlog.domain.json_text import JsonValue


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Part(BaseModel, frozen=True, extra="allow"):
    """One part of a message. Fields that are not declared are kept flat beside the declared ones."""

    type: str

    @model_validator(mode="wrap")
    @classmethod
    def _typed_error(cls, value: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(value)
        except ValidationError as error:
            raise InvalidPartError(f"A {cls.__name__} is malformed: {_reasons(error)}.") from error

    @property
    def extra(self) -> Mapping[str, Any]:
        """The fields that are not declared."""
        return self.__pydantic_extra__ or {}

    def to_dict(self) -> dict[str, JsonValue]:
        """The part as plain JSON data; fields that are not set are left out."""
        return _plain(self)


class TextPart(Part, frozen=True):
    """Text of the message."""

    type: Literal["text"] = "text"
    content: str


class ReasoningPart(Part, frozen=True):
    """What a model thought before it answered. Signatures and ids of the provider are further fields."""

    type: Literal["reasoning"] = "reasoning"
    content: str | None = None


class ToolCallPart(Part, frozen=True):
    """A call that the model asks for. `arguments` is the text as the model wrote it, valid JSON or not.

    `awaiting` marks a call whose result comes later (approval by a person, a long-running tool): its turn
    stays in the view until the call is answered or abandoned.
    """

    type: Literal["tool_call"] = "tool_call"
    id: str | None = None
    name: str
    arguments: str = ""
    awaiting: bool = False

    @model_validator(mode="before")
    @classmethod
    def _refuse_parsed(cls, data: object) -> object:
        _refuse_parsed_arguments(data)
        return data


class ToolCallResponsePart(Part, frozen=True):
    """The result of a call: text, or a list of parts. A `provisional` result keeps an awaited call open."""

    type: Literal["tool_call_response"] = "tool_call_response"
    id: str | None = None
    name: str | None = None
    response: str | tuple[AnyPart, ...] = ""
    provisional: bool = False

    @model_validator(mode="before")
    @classmethod
    def _refuse_lookalikes(cls, data: object) -> object:
        _refuse_instead_of("response", ("result", "content", "output"), data, InvalidPartError)
        return data


class ServerToolCallPart(Part, frozen=True):
    """A call that the provider ran itself."""

    type: Literal["server_tool_call"] = "server_tool_call"
    id: str | None = None
    name: str | None = None


class ServerToolCallResponsePart(Part, frozen=True):
    """The result of a call that the provider ran itself."""

    type: Literal["server_tool_call_response"] = "server_tool_call_response"
    id: str | None = None


class BlobPart(Part, frozen=True):
    """Binary content in the message, as base64. `modality` is `image`, `audio`, `video` …"""

    type: Literal["blob"] = "blob"
    modality: str
    mime_type: str | None = None
    content: str


class FilePart(Part, frozen=True):
    """A file that the provider holds under an id."""

    type: Literal["file"] = "file"
    modality: str
    mime_type: str | None = None
    file_id: str


class UriPart(Part, frozen=True):
    """Content behind an address."""

    type: Literal["uri"] = "uri"
    modality: str
    mime_type: str | None = None
    uri: str


class CompactionPart(Part, frozen=True):
    """A compaction block of a provider. It is data of the provider's, never a boundary of ours."""

    type: Literal["compaction"] = "compaction"


class GenericPart(Part, frozen=True):
    """A part of any other type, kept as it came."""


_MAPPING = (dict, Mapping)
"""What has fields, the usual kind first: `Mapping` alone is asked at a price."""

_PART_TYPES = frozenset(
    (
        "text",
        "reasoning",
        "tool_call",
        "tool_call_response",
        "server_tool_call",
        "server_tool_call_response",
        "blob",
        "file",
        "uri",
        "compaction",
    )
)


def _part_tag(value: object) -> str:
    if isinstance(value, _MAPPING):
        found = cast("Mapping[str, object]", value).get("type")
    else:
        found = getattr(value, "type", None)
    if not isinstance(found, str) or not found:
        raise InvalidPartError(f"A part needs a `type` that is text, this one has {found!r}.")
    return found if found in _PART_TYPES else "generic"


AnyPart: TypeAlias = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[ReasoningPart, Tag("reasoning")]
    | Annotated[ToolCallPart, Tag("tool_call")]
    | Annotated[ToolCallResponsePart, Tag("tool_call_response")]
    | Annotated[ServerToolCallPart, Tag("server_tool_call")]
    | Annotated[ServerToolCallResponsePart, Tag("server_tool_call_response")]
    | Annotated[BlobPart, Tag("blob")]
    | Annotated[FilePart, Tag("file")]
    | Annotated[UriPart, Tag("uri")]
    | Annotated[CompactionPart, Tag("compaction")]
    | Annotated[GenericPart, Tag("generic")],
    Discriminator(_part_tag),
]
"""A part by its `type`."""

Content: TypeAlias = str | Iterable[Part | Mapping[str, Any]] | None
"""What a message can be made of: text, parts (or their plain form), or nothing."""


class Message(BaseModel, frozen=True, extra="allow"):
    """What one side said: a role and parts.

    `origin` names the format that the message came from, `shape` what the neutral form cannot say about it,
    and `metadata` is JSON that is never sent to a model.
    """

    role: Role
    parts: tuple[AnyPart, ...] = ()
    origin: str | None = None
    shape: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _typed_error(cls, value: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        _refuse_instead_of("parts", ("content", "text"), value, InvalidMessageError)
        try:
            return handler(value)
        except ValidationError as error:
            raise InvalidMessageError(f"A message is malformed: {_reasons(error)}.") from error

    @classmethod
    def of(cls, role: Role, content: Content, **fields: Any) -> Self:
        """A message of this role, made of text or of parts."""
        return cls(role=role, parts=_parts(content), **fields)

    @classmethod
    def system(cls, content: Content, **fields: Any) -> Self:
        """Instructions to the model."""
        return cls.of(Role.SYSTEM, content, **fields)

    @classmethod
    def user(cls, content: Content, **fields: Any) -> Self:
        """What the user said."""
        return cls.of(Role.USER, content, **fields)

    @classmethod
    def assistant(cls, content: Content = None, **fields: Any) -> Self:
        """What the model answered, its calls included."""
        return cls.of(Role.ASSISTANT, content, **fields)

    @classmethod
    def tool(
        cls,
        content: Content,
        *,
        id: str | None = None,  # noqa: A002 - the conventions' name
        name: str | None = None,
        provisional: bool = False,
        **fields: Any,
    ) -> Self:
        """Results of calls: response parts, or the text of one result and the `id` of its call."""
        if isinstance(content, str):
            content = [ToolCallResponsePart(id=id, name=name, response=content, provisional=provisional)]
        elif id is not None or name is not None or provisional:
            raise InvalidMessageError(
                "`id`, `name` and `provisional` go with the text of one result; parts have their own."
            )
        return cls.of(Role.TOOL, content, **fields)

    def awaiting(self, *call_ids: str) -> Self:
        """This message with these of its calls marked as awaiting their result; all of them without ids."""
        unknown = set(call_ids) - {call.id for call in self.tool_calls}
        if unknown:
            raise InvalidMessageError(f"The message has no call {', '.join(map(repr, sorted(unknown)))}.")
        parts = (
            part.model_copy(update={"awaiting": True})
            if isinstance(part, ToolCallPart) and (not call_ids or part.id in call_ids)
            else part
            for part in self.parts
        )
        return self.model_copy(update={"parts": tuple(parts)})

    @property
    def text(self) -> str | None:
        """The text parts, joined by line breaks; None when there is none."""
        texts = [part.content for part in self.parts if isinstance(part, TextPart)]
        return "\n".join(texts) if texts else None

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The calls that the message asks for, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))

    @property
    def tool_responses(self) -> tuple[ToolCallResponsePart, ...]:
        """The results that the message brings, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallResponsePart))

    @property
    def extra(self) -> Mapping[str, Any]:
        """The fields that are not declared."""
        return self.__pydantic_extra__ or {}

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing but declared fields that are text, so that JSON holds it for sure."""
        if self.shape or self.metadata or self.__pydantic_extra__:
            return False
        return not any(
            part.__pydantic_extra__ or isinstance(part, ToolCallResponsePart) for part in self.parts
        )

    def to_dict(self) -> dict[str, JsonValue]:
        """The message as plain JSON data; fields that are not set are left out."""
        return _plain(self)


def _parts(content: Content) -> Any:
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextPart(content=content),)
    if _is_list(content):
        return tuple(content)
    raise InvalidMessageError(
        "A message is made of a text or of a list of parts, as in [TextPart(content=…)], not of a value of "
        f"type {type(content).__name__}."
    )


def _is_list(content: object) -> bool:
    """Whether it can be iterated over, and is not one thing that only happens to allow that."""
    return isinstance(content, Iterable) and not isinstance(content, (*_MAPPING, bytes, BaseModel))


def _plain(model: Part | Message) -> dict[str, JsonValue]:
    """Declared fields that are set, then the further ones, as plain data."""
    data: dict[str, Any] = {}
    for name, value in model.__dict__.items():
        if value is None or value is False:
            continue
        if isinstance(value, Role):
            value = value.value
        elif isinstance(value, tuple):
            value = [_plain(part) for part in cast("tuple[Part, ...]", value)]
        data[name] = value
    if model.__pydantic_extra__:
        data.update(model.__pydantic_extra__)
    return data


def _refuse_instead_of(
    name: str, lookalikes: tuple[str, ...], data: object, error: type[InvalidMessageError | InvalidPartError]
) -> None:
    """Refuse a field that looks like `name` where that is missing: it would be kept and told to nobody."""
    if isinstance(data, _MAPPING) and name not in data:
        found = [one for one in lookalikes if one in cast("Mapping[str, object]", data)]
        if found:
            hint = "Message.user(…), or `parts`" if name == "parts" else f"`{name}`"
            raise error(f"There is no field {found[0]!r} here: use {hint}.")


def _refuse_parsed_arguments(data: object) -> None:
    if isinstance(data, Mapping):
        given = cast("Mapping[str, object]", data).get("arguments")
        if isinstance(given, (dict, list)):
            raise InvalidPartError(
                "`arguments` is the text as the model wrote it: give json.dumps(…) of what was parsed."
            )


def _reasons(error: ValidationError) -> str:
    """Where and why, without the values: they may be what nobody should read in a log."""
    return "; ".join(
        f"{'.'.join(map(str, detail['loc'])) or 'it'}: {_WORDS.get(detail['type'], detail['msg'])}"
        for detail in error.errors(include_url=False, include_input=False, include_context=False)[:3]
    )


_WORDS: Final = {
    "dict_type": "it must be a mapping",
    "missing": "it is missing",
    "string_type": "it must be text",
    "tuple_type": "it must be a list of parts",
}
"""What pydantic says of types of Python that nobody wrote."""

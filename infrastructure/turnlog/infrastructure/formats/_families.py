"""Whether two names of models mean one family, to which reasoning may go back."""

from __future__ import annotations

import re

from turnlog.domain.messages import Message

ASKED = "request_model"
"""In the metadata of an answer: the model that was asked, where the server names another one."""

_VENDOR = re.compile(r"^([a-z-]+\.)?anthropic\.")
_SNAPSHOT = re.compile(
    r"[-@](?:\d{4}-\d{2}-\d{2}|\d{8}|\d{6}|\d{4}|latest|preview|exp|0|v\d+)$",
)
_GENERATION = re.compile(r"gpt-\d+(\.\d+)?|o\d+")


def family(model: str) -> str:
    """The name of a model without who serves it, its tag and the date of its snapshot.

    Of OpenAI's models the sizes of one generation are one family: `gpt-5-mini` is of the family `gpt-5`.
    """
    name = model.strip().lower().rpartition("/")[2]
    name, _, _ = _VENDOR.sub("", name).partition(":")
    if generation := _GENERATION.match(name):
        return generation.group()
    while found := _SNAPSHOT.search(name):
        name = name[: found.start()]
    return name


def is_of_family(said: Message, model: str, provider: str | None = None) -> bool:
    """Whether this model may read what was thought in the message; yes when nothing says who thought it.

    With `provider` what another provider's servers answered is not of the family.
    """
    metadata = said.metadata or {}
    if provider and metadata.get("provider", provider) != provider:
        return False
    names = [name for name in (metadata.get("model"), metadata.get(ASKED)) if isinstance(name, str)]
    return not names or any(family(name) == family(model) for name in names)

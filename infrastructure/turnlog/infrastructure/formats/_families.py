"""Whether two names of models mean one family, to which reasoning may go back."""

from __future__ import annotations

import re

from turnlog.domain.messages import Message

_SNAPSHOT = re.compile(r"[-@](20\d\d-?\d\d-?\d\d|latest)\b.*$")
_GENERATION = re.compile(r"gpt-\d+(\.\d+)?|o\d+")
_ANTHROPIC_ON_BEDROCK = re.compile(r"^([a-z-]+\.)?anthropic\.")


def family(model: str) -> str:
    """The name without date and vendor and, for OpenAI, size: `gpt-5-mini` is of the family `gpt-5`."""
    name = _ANTHROPIC_ON_BEDROCK.sub("", model.rpartition("/")[2].lower())
    generation = _GENERATION.match(name)
    return generation.group() if generation else _SNAPSHOT.sub("", name)


def is_of_family(said: Message, model: str) -> bool:
    """Whether this model may read what was thought in the message; yes when nothing says who thought it."""
    author = (said.metadata or {}).get("model")
    return not isinstance(author, str) or family(author) == family(model)

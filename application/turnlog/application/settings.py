"""What is wrong with a setting that names code; the framework names the topic and not the variable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from eventsourcing.persistence import InfrastructureFactory, InfrastructureFactoryError
from eventsourcing.utils import TopicError, resolve_topic

from turnlog.domain.errors import InvalidSettingError, MissingExtraError

_NAMES_CODE: Final = ("_TOPIC", "PERSISTENCE_MODULE", "INFRASTRUCTURE_FACTORY")
"""How variables end whose values are topics; what is in front may be the name of an application."""

_EXTRAS: Final = {
    "cryptography": "shred",
    "eventsourcing_sqlalchemy": "sqlalchemy",
    "psycopg": "postgres",
    "psycopg_pool": "postgres",
    "sqlalchemy": "sqlalchemy",
}
"""By a module that is not installed, the extra that brings it."""

_RECORDERS: Final = {
    "eventsourcing.postgres": "eventsourcing.postgres:PostgresApplicationRecorder",
    "eventsourcing.sqlite": "eventsourcing.sqlite:SQLiteApplicationRecorder",
}
_MAPPER: Final = "eventsourcing.persistence:Mapper"
_STORES: Final = {
    "eventsourcing.popo": (
        "eventsourcing.popo:POPOTrackingRecorder",
        "MemoryFollowerStore and MemoryViewStore of turnlog.application.projections",
    ),
    "eventsourcing.postgres": (
        "eventsourcing.postgres:PostgresTrackingRecorder",
        "PostgresFollowerStore and PostgresViewStore of turnlog.infrastructure.postgres",
    ),
    "eventsourcing.sqlite": (
        "eventsourcing.sqlite:SQLiteTrackingRecorder",
        "SqliteFollowerStore and SqliteViewStore of turnlog.infrastructure.sqlite",
    ),
}
"""By persistence module, what the framework asserts of a class that is named; and which of ours are that."""


def setting(env: Mapping[str, str], name: str, default: str) -> Any:
    """What the variable names, else what the default does. Raises `InvalidSettingError`.

    The environment of an application answers for variables that begin with its name, too.
    """
    try:
        return resolve_topic(env.get(name) or default)
    except TopicError as error:
        refused = refused_setting(env, error)
        if refused is None:
            raise
        raise refused from error


def refused_setting(env: Mapping[str, str], error: BaseException) -> InvalidSettingError | None:
    """The error of ours for what the framework raised because of a setting; None for anything else."""
    if isinstance(error, (TopicError, InfrastructureFactoryError)):
        return _unresolved(env, error)
    if isinstance(error, (AssertionError, TypeError)):  # `issubclass`, of what is no class
        return _unfit(env)
    return None


def refused_store(env: Mapping[str, str], store_class: type) -> InvalidSettingError | None:
    """The error for a class of stores that is for another persistence module; None where it fits."""
    module = _module(env)
    if module not in _STORES:
        return None
    topic, ours = _STORES[module]
    if issubclass(store_class, resolve_topic(topic)):
        return None
    return InvalidSettingError(
        f"{store_class.__name__} does not go with PERSISTENCE_MODULE={module!r}: a store that derives from "
        f"{_last(topic)} does, as {ours}."
    )


def _unresolved(env: Mapping[str, str], error: Exception) -> InvalidSettingError | None:
    said = str(error)
    variable = next(
        (name for name, topic in env.items() if name.endswith(_NAMES_CODE) and f"'{topic}'" in said), None
    )
    if variable is None and env.get("CIPHER_KEY"):  # it alone names the framework's cipher
        variable = "CIPHER_KEY"
    if variable is None:
        return None
    named = variable if variable == "CIPHER_KEY" else f"{variable}={env[variable]!r}"
    reason: BaseException = error
    while reason.__cause__ is not None:
        reason = reason.__cause__
    extra = _extra(reason)
    if extra is not None:
        return MissingExtraError(extra, named)
    form = "package.module" if variable.endswith("PERSISTENCE_MODULE") else "package.module:Name"
    return InvalidSettingError(
        f"{named} names nothing that can be used: {str(reason).rstrip('.')}. Correct it (its form is "
        f"{form}), or install the package that it names."
    )


def _extra(reason: BaseException) -> str | None:
    if not isinstance(reason, ImportError):
        return None
    return "postgres" if "pq wrapper" in str(reason) else _EXTRAS.get(reason.name or "")


def _unfit(env: Mapping[str, str]) -> InvalidSettingError | None:
    """What is no class of the kind that the framework asserts."""
    module = _module(env)
    wanted = {"APPLICATION_RECORDER_TOPIC": _RECORDERS.get(module), "MAPPER_TOPIC": _MAPPER}
    for variable, base in wanted.items():
        topic = env.get(variable)
        if not topic or base is None:
            continue
        found = resolve_topic(topic)
        if not isinstance(found, type) or not issubclass(found, resolve_topic(base)):
            return InvalidSettingError(
                f"{variable}={topic!r} does not go with PERSISTENCE_MODULE={module!r}: a class that derives "
                f"from {_last(base)} does. Leave it unset for the one that fits."
            )
    return None


def _module(env: Mapping[str, str]) -> str:
    return env.get(InfrastructureFactory.PERSISTENCE_MODULE) or "eventsourcing.popo"


def _last(topic: str) -> str:
    return topic.partition(":")[2]

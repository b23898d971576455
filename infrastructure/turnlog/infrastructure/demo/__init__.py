"""The demonstration: a real conversation that outgrows its window."""

from turnlog.infrastructure.demo.play import play

__all__ = ["play"]

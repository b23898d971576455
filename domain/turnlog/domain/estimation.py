"""The port that counts tokens."""

from __future__ import annotations

from typing import Protocol

from turnlog.domain.messages import Message


class TokenEstimator(Protocol):
    """Says how many tokens a message costs when it is sent to a model.

    It never raises, never asks the network, and takes time bounded by the length of the message. It is a
    function of the message: the same message always costs the same, so that answers can be remembered.
    """

    def estimate(self, message: Message) -> int:
        """The tokens of the message, 0 or more, its overhead in a request included."""
        ...

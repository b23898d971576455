"""What a call cost, where the prices of the model are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from turnlog.application.chat.usage import Usage

_MILLION = Decimal(1_000_000)


@dataclass(frozen=True)
class Price:
    """Prices per million tokens. What has no price of its own costs that of the input."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_creation: Decimal | None = None
    currency: str = "USD"

    def of(self, usage: Usage) -> Decimal:
        """What this usage cost."""
        read, created = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        fresh = max(0, (usage.input_tokens or 0) - read - created)
        cost = fresh * self.input + (usage.output_tokens or 0) * self.output
        cost += read * (self.input if self.cache_read is None else self.cache_read)
        cost += created * (self.input if self.cache_creation is None else self.cache_creation)
        return cost / _MILLION


Prices: TypeAlias = Mapping[str, Price]
"""Prices by the name of the model."""


def cost_data(prices: Prices, usage: Usage | None, *models: str | None) -> dict[str, str] | None:
    """The cost as it is stored; the first model that has a price decides. None without usage or price."""
    price = next((prices[model] for model in models if model is not None and model in prices), None)
    if price is None or usage is None:
        return None
    return {"amount": format(price.of(usage).normalize(), "f"), "currency": price.currency}

"""A shop with conversations beside its orders: a message and an order are stored together or not at all.

Run it: python examples/host_application.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.utils import EnvType

from turnlog.application import AnchorSnapshots, SessionService
from turnlog.domain import Message, VersionConflictError


class Order(Aggregate):
    """An aggregate of the shop's own."""

    @event("Placed")
    def __init__(self, item: str) -> None:
        self.item = item

    @event("Changed")
    def change(self, item: str) -> None:
        """Another item instead."""
        self.item = item


class Shop(Application[UUID]):
    """The shop's application. Sessions live in its store, under its settings."""

    def __init__(self, env: EnvType | None = None) -> None:
        super().__init__(env)
        self.repository.snapshot_store = AnchorSnapshots(self.events, self.repository.snapshot_store)
        self.sessions = SessionService(self)

    def order(self, order_id: UUID) -> Order:
        """The order as it is now."""
        return cast("Order", self.repository.get(order_id))

    def place_order(self, session_id: str, item: str) -> UUID:
        """Place an order and tell the customer, in one transaction."""
        order = Order(item)
        said = Message.assistant(f"I ordered {item} for you.")
        self.sessions.append_message(session_id, said, also=[order])
        return order.id

    def change_order(self, session_id: str, order_id: UUID, item: str) -> None:
        """Change an order and tell the customer. A lost race is run again: `also` is a function."""

        def changed() -> Sequence[Order]:
            order = self.order(order_id)
            order.change(item)
            return [order]

        said = Message.assistant(f"It is {item} now.")
        self.sessions.append_message(session_id, said, also=changed)


def main() -> None:
    """Order tea, change it to coffee, and fail to change it behind somebody's back."""
    with TemporaryDirectory() as folder:
        file = str(Path(folder) / "shop.db")
        shop = Shop({"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": file})
        shop.sessions.create("ada-1")
        shop.sessions.append_message("ada-1", Message.user("Tea, please."))

        order_id = shop.place_order("ada-1", "tea")
        seen = shop.order(order_id)
        shop.change_order("ada-1", order_id, "coffee")

        seen.change("milk")  # on an order that somebody changed meanwhile
        try:
            shop.sessions.append_message("ada-1", Message.assistant("Milk it is."), also=[seen])
        except VersionConflictError:
            print("refused: the order moved on, so the message is not stored either")

        for message in shop.sessions.view("ada-1").told():
            print(f"{message.role}: {message.text}")
        print(f"the order: {shop.order(order_id).item}")
        shop.close()


if __name__ == "__main__":
    main()

"""Measuring in turns: each library once per round at each size, so that a noisy moment hits all of them."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence, Sized
from dataclasses import dataclass, field

from benchmarks.peers.peer import WINDOW, Peer

OPERATIONS = ("append", "window, warm", "window, cold", "compact", "search")

IN_A_ROW = 5
"""Calls that are measured in one turn."""

AT_LEAST = 3
"""Rounds that are measured however long they take."""


@dataclass
class Times:
    """What the calls of one operation took, in seconds, and what the processor worked in this process."""

    elapsed: list[float] = field(default_factory=list[float])
    worked: list[float] = field(default_factory=list[float])

    @property
    def seconds(self) -> float:
        """The median by the clock."""
        return statistics.median(self.elapsed)

    @property
    def processor(self) -> float:
        """The median of the processor's time."""
        return statistics.median(self.worked)

    async def take(self, call: Callable[[], Awaitable[object]]) -> object:
        """Measure one call."""
        worked, start = time.process_time(), time.perf_counter()
        answer = await call()
        self.elapsed.append(time.perf_counter() - start)
        self.worked.append(time.process_time() - worked)
        return answer


Table = dict[tuple[str, int, str], Times]
"""By name of the library, number of messages and operation."""


async def measure(peers: Sequence[Peer], rounds: int, patience: float) -> Table:
    """Every operation of every library; who used up its patience, in seconds, is not asked any more.

    The order is another one in each round, so that nobody always comes behind the same neighbour.
    """
    table: Table = {}
    shuffle = random.Random(7).shuffle
    for operation in OPERATIONS:
        asked = [peer for peer in peers if operation.split(",")[0] not in peer.without]
        for peer in asked:
            table[peer.name, peer.size, operation] = Times()
        for number in range(rounds):
            shuffle(asked)
            for peer in asked:
                times = table[peer.name, peer.size, operation]
                if number < AT_LEAST or sum(times.elapsed) < patience:
                    await _turn(peer, operation, times, patience)
    return table


async def _turn(peer: Peer, operation: str, times: Times, patience: float) -> None:
    """Some calls in a row, the first not measured: what others left in the caches counts for nobody."""
    await _once(peer, operation, Times())
    started = sum(times.elapsed)
    for number in range(IN_A_ROW):
        if number == 0 or sum(times.elapsed) < started + patience / 10:
            await _once(peer, operation, times)


async def _once(peer: Peer, operation: str, times: Times) -> None:
    await peer.before(operation.split(",")[0])
    if operation == "window, cold":
        fresh = type(peer)(peer.place, peer.size)
        await fresh.open()
        _has_all(peer, await times.take(fresh.window))
        await fresh.close()
    elif operation == "window, warm":
        _has_all(peer, await times.take(peer.window))
    elif operation == "search":
        found = await times.take(peer.search)
        if not isinstance(found, Sized) or len(found) != 10:
            raise AssertionError(f"{peer.name} did not find the ten messages.")
    else:
        await times.take(peer.append if operation == "append" else peer.compact)


def _has_all(peer: Peer, found: object) -> None:
    if not isinstance(found, Sized) or len(found) != WINDOW:
        raise AssertionError(f"{peer.name} did not give the {WINDOW} messages of the window.")

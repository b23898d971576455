"""A day of traffic on one to many shards, simulated: how long an append waits at which load.

Sessions arrive through a day with a peak; how much is said in each is Zipf-distributed. Each shard serves one
append after the other, as its lock makes it, in a time drawn around a measured one. Nothing sleeps: it is a
discrete-event simulation in plain Python with a seed, so its table is the same each time it is run. Run it
with `python -m benchmarks.simulation`; `--service-ms` takes the time of an append on your server, alone.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import random
from dataclasses import dataclass
from typing import Final

DAY: Final = 60.0
"""Seconds into which the day is compressed, with the rates of a whole one; it is a ring, without edges."""

SWING: Final = 0.6
"""The busiest moment of the day has 1.6 times the mean of the day, the quietest 0.4 times."""

SPREAD: Final = 0.5
"""Sigma of the log-normal service times: the 99th percentile takes 3.2 times the median."""

MOST_SAID: Final = 2_000
"""Messages of the longest of a thousand sessions; the n-th longest has one n-th of it."""

PAUSE: Final = 2.0
"""Seconds between two messages of a session on average; less in long ones, which are an agent's."""


@dataclass(frozen=True)
class Outcome:
    """What a day came to. Times are milliseconds from the arrival of an append to its commit."""

    appends: int
    p50: float
    p99: float
    worst: float
    busiest: float
    """The part of the day for which the lock of the busiest shard is held."""


def arrivals(chance: random.Random, rate: float) -> list[tuple[float, int]]:
    """Appends in the order of time: second of the day, and session. `rate` is the mean in a second."""
    found: list[tuple[float, int]] = []
    session = 0
    while len(found) < rate * DAY:
        start = chance.uniform(0, DAY)
        if chance.random() * (1 + SWING) > 1 - SWING * math.cos(2 * math.pi * start / DAY):
            continue
        length = max(1, MOST_SAID // chance.randint(1, 1_000))
        pace = 1 / min(PAUSE, DAY / 8 / length)
        for _ in range(length):
            found.append((start % DAY, session))
            start += chance.expovariate(pace)
        session += 1
    return sorted(found)


def run(shards: int, rate: float, service: float, seed: int = 1) -> Outcome:
    """A day on so many shards at this rate (appends a second), with this mean service time (seconds)."""
    chance = random.Random(seed)
    free_at = [0.0] * shards
    held = [0.0] * shards
    times: list[float] = []
    middle = math.log(service) - SPREAD**2 / 2
    for at, session in arrivals(chance, rate):
        shard = _shard_of(session, shards)
        took = chance.lognormvariate(middle, SPREAD)
        free_at[shard] = max(at, free_at[shard]) + took
        held[shard] += took
        times.append(free_at[shard] - at)
    times.sort()
    return Outcome(
        appends=len(times),
        p50=times[len(times) // 2] * 1000,
        p99=times[len(times) * 99 // 100] * 1000,
        worst=times[-1] * 1000,
        busiest=max(held) / DAY,
    )


def _shard_of(session: int, shards: int) -> int:
    return hashlib.sha256(str(session).encode()).digest()[0] % shards


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one and four shards only")
    parser.add_argument("--service-ms", type=float, default=0.5)
    options = parser.parse_args()
    service = options.service_ms / 1000
    print("| shards | appends/s | mean load | at the peak | busiest shard | p50 ms | p99 ms | worst ms |")
    print("|--------|-----------|-----------|-------------|---------------|--------|--------|----------|")
    for shards in (1, 4) if options.quick else (1, 4, 16):
        for load in (0.2, 0.4, 0.5, 0.6):
            rate = load * shards / service
            day = run(shards, rate, service)
            print(
                f"| {shards:>6} | {rate:>9,.0f} | {load:>9.0%} | {load * (1 + SWING):>11.0%} "
                f"| {day.busiest:>13.0%} | {day.p50:>6.1f} | {day.p99:>6.1f} | {day.worst:>8.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""How long the laws are tried: shortly and always alike, or at length with HYPOTHESIS_PROFILE=soak.

Only the long run makes what it found small, which can take minutes.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

IS_SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"

_ALWAYS = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    print_blob=True,
)


def effort(short: int, soak: int, *, steps: tuple[int, int] = (25, 60)) -> settings:
    """So many examples, with so many steps each where they have steps: (short, soak)."""
    return settings(
        _ALWAYS,
        max_examples=soak if IS_SOAK else short,
        stateful_step_count=steps[IS_SOAK],
        derandomize=not IS_SOAK,
        phases=set(Phase) - (set() if IS_SOAK else {Phase.shrink, Phase.explain}),
    )

"""Events as a decision makes them."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.application.mapper_check import samples
from turnlog.domain.events import HoldReleased, StreamEvent

SAMPLES = [sample for sample in samples() if isinstance(sample, StreamEvent)]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_a_recorded_event_is_what_its_class_makes(sample: StreamEvent) -> None:
    fields: dict[str, Any] = {**vars(sample), "context": None}
    recorded = type(sample).recorded(**fields)
    assert list(vars(recorded).items()) == list(vars(type(sample)(**fields)).items())


def test_a_field_that_the_class_lacks_is_refused() -> None:
    with pytest.raises(TypeError, match="HoldReleased has no field 'why'"):
        HoldReleased.recorded(placed_at=1, why="over")

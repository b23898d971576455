"""The page about compaction: its examples run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs/explanation/compaction.md"


def test_the_examples_of_the_page_run_in_their_order() -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    for example in examples:
        exec(example, names)  # noqa: S102 - our own page
    assert names["boundary"].branch == "planner.scout"

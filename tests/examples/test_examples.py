"""The examples and the page about embedding run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

SAID = {
    "host_application.py": """\
refused: the order moved on, so the message is not stored either
user: Tea, please.
assistant: I ordered tea for you.
assistant: It is coffee now.
the order: coffee
""",
    "host_recorder.py": """\
mail-17: stored
mail-17: held already
sessions: ['ada-1']
event ids are kept as rows
outbox: ['SessionOpened', 'MessageAppended']
""",
}
"""What an example prints, where that is the point of it."""


def _run(*arguments: str) -> str:
    run = subprocess.run(
        (sys.executable, *arguments), capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(example: Path) -> None:
    said = _run(str(example))
    assert said == SAID.get(example.name, said)


def test_the_page_about_embedding_runs_from_top_to_bottom() -> None:
    page = (ROOT / "docs/howto/embed.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    _run("-c", "\n".join(blocks))

"""The Python blocks of each page run, one after the other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
ELSEWHERE = {"reference/formats.md", "howto/postgres.md", "howto/shard.md", "howto/damaged-log.md"}
"""Pages whose blocks need servers; tests of their own run them, here, in `tests/postgres` and `formats`."""
PAGES = sorted(
    name
    for page in DOCS.rglob("*.md")
    if "```python" in page.read_text("utf-8") and (name := str(page.relative_to(DOCS))) not in ELSEWHERE
)


@pytest.mark.parametrize("name", PAGES)
def test_the_blocks_of_a_page_run_one_after_the_other(name: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / name).read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert blocks
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr

"""The Python blocks of the page about PostgreSQL run, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "postgres.md"


def test_the_blocks_of_the_page_run(env: Mapping[str, str], tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    command = [sys.executable, "-W", "error", str(program)]
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr

"""The README's blocks run as they stand, against a real server on the loopback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def test_the_python_blocks_run_one_after_the_other(openai_server: str, tmp_path: Path) -> None:
    blocks = _blocks("python")
    assert len(blocks) >= 5
    program = tmp_path / "readme.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=tmp_path,
        env={"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": openai_server, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (run.returncode, run.stdout) == (0, "I was told 1 messages.\n"), run.stderr


def test_the_console_blocks_run_one_after_the_other(tmp_path: Path) -> None:
    question = {"role": "user", "content": "Where is my parcel?"}
    answer = {"role": "assistant", "content": "In Lund."}
    chat = {"messages": [question, answer] * 4}
    (tmp_path / "conversations.jsonl").write_text(json.dumps(chat) + "\n", encoding="utf-8")
    commands = re.findall(r"^\$ turnlog (.*)$", "\n".join(_blocks("console")), flags=re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        run = subprocess.run(
            [Path(sys.executable).with_name("turnlog"), *command.split()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert run.returncode == 0, f"turnlog {command}: {run.stdout}{run.stderr}"


def test_the_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    local = [link for link in links if "://" not in link]
    assert local
    assert [link for link in local if not (ROOT / link).exists()] == []

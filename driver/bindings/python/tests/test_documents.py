"""Runs the Python programs of the project's documents."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PAGES = ["README.md", "driver/bindings/python/README.md", "docs/guide/python.md"]
# A block of another language, or one that is not complete, is marked otherwise: `py` instead of `python`.
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_programs_of_page_run(page: str, tmp_path: Path) -> None:
    """The blocks of a page are one program, in their order."""
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks, f"{page} has no Python program"
    run("\n".join(blocks), tmp_path)


@pytest.mark.parametrize("program", BLOCK.findall((ROOT / "docs/guide/python.md").read_text()), ids=lambda _: "block")
def test_program_of_guide_runs_alone(program: str, tmp_path: Path) -> None:
    """A reader copies one block."""
    run(program, tmp_path)


def run(text: str, folder: Path) -> None:
    program = folder / "page.py"
    program.write_text(text)
    done = subprocess.run([sys.executable, "-W", "error", program], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr

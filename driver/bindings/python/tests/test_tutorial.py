"""Runs the tutorial, as a person runs it cell by cell."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[4] / "examples/python/tutorial.ipynb"


def test_tutorial_runs_and_draws(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    texts = [output["data"]["text/plain"] for output in outputs if "data" in output]
    assert "True" in texts and r"b'\x01\x01\x01\x01\x01\x01\x01\x01'" in texts


def test_tutorial_is_committed_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")

"""The stubs of the native module describe the built module: names, parameters and defaults, as mypy's stubtest compares them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ALLOWED = (
    # pyo3 writes "..." for defaults that are not literals in Rust.
    "has a default value of Ellipsis",
    # Overloads: without the argument, the type is that of bytes.
    'runtime parameter "dtype" has a default value of type None',
    # Types of the stubs, and what Python derives from other methods.
    "_native.__all__ is not present in stub",
    "_native.Memory is not present at runtime",
    "_native.Numbers is not present at runtime",
    "_native.T is not present at runtime",
    "__buffer__ is not present at runtime",
    "__iter__ is not present at runtime",
)


def test_stubs_match_built_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy.stubtest", "fpga_rdma._native", "--concise"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout and not done.stderr, done.stderr
    differences = [line for line in done.stdout.splitlines() if not any(allowed in line for allowed in ALLOWED)]
    assert differences == []

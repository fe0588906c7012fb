"""Runs the examples in the docstrings of the native classes."""

from __future__ import annotations

import ast
import doctest
from collections.abc import Iterator
from importlib.resources import files

import pytest

STUBS = files("fpga_rdma").joinpath("_native.pyi").read_text()


def examples() -> Iterator[doctest.DocTest]:
    for node in ast.walk(ast.parse(STUBS)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            test = doctest.DocTestParser().get_doctest(ast.get_docstring(node) or "", {}, node.name, "_native.pyi", node.lineno)
            if test.examples:
                yield test


@pytest.mark.parametrize("test", list(examples()), ids=lambda test: test.name)
def test_example_of_docstring_runs(test: doctest.DocTest) -> None:
    report: list[str] = []
    failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append).failed
    assert failed == 0, "".join(report)

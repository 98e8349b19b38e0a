"""The tests stay quick and apart: none sleeps blindly, none hides another."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.tidy import tree

CLOCKS = {"time", "asyncio", "anyio", "trio"}


def test_no_test_sleeps_for_a_fixed_time() -> None:
    """Jobs that the tests run may: their bodies are in files of their own."""
    tree.assert_none(
        "Wait for the event itself, or use a virtual clock:",
        (
            f"{tree.name_of(path)}:{call.lineno} {ast.unparse(call)}"
            for path in tree.test_files()
            if path.name.startswith(("test_", "conftest"))
            for call in _calls(path)
            if _is_sleep(call.func) and _is_positive(call.args)
        ),
    )


def test_no_two_test_files_have_one_name() -> None:
    """Outside a package, Python knows a test file by its bare name only.

    Only conftest.py is exempt: pytest itself tells those apart.
    """
    places = defaultdict(list)
    for path in tree.test_files():
        in_package = (path.parent / "__init__.py").exists()
        if not in_package and path.name != "conftest.py":
            places[path.name].append(tree.name_of(path))
    tree.assert_none(
        "Rename all but one of each, or add __init__.py:",
        (", ".join(names) for names in places.values() if len(names) > 1),
    )


def _calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree.syntax(path)) if isinstance(node, ast.Call))


def _is_sleep(function: ast.expr) -> bool:
    match function:
        case ast.Name(id="sleep"):
            return True
        case ast.Attribute(value=ast.Name(id=module), attr="sleep"):
            return module in CLOCKS
        case _:
            return False


def _is_positive(arguments: list[ast.expr]) -> bool:
    match arguments:
        case [ast.Constant(value=int() | float() as delay), *_]:
            return delay > 0
        case _:
            return False

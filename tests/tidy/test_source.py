"""The source stays readable: small files, small functions, telling names, nothing unfinished."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy import tree

FILE_LINES = 600
FUNCTION_LINES = 70

# Spelled in halves, so that this file does not hold what it looks for.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|NotImpl" r"ementedError)\b")
EMPTY_NAMES = re.compile(r"_?(utils?|commons?|helpers?|base|managers?)")


def test_no_source_file_is_too_long() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in tree.source_files()}
    tree.assert_none(
        f"Split these files, a source file has at most {FILE_LINES} lines:",
        (f"{tree.name_of(path)}: {n} lines" for path, n in lengths.items() if n > FILE_LINES),
    )


def test_no_function_is_too_long() -> None:
    tree.assert_none(
        f"Split these functions, one has at most {FUNCTION_LINES} lines:",
        (
            f"{tree.name_of(path)}:{function.lineno} {function.name}: {_lines(function)} lines"
            for path in tree.source_files()
            for function in _functions(path)
            if _lines(function) > FUNCTION_LINES
        ),
    )


def test_nothing_in_the_source_is_left_for_later() -> None:
    tree.assert_none(
        "Finish these, or drop them:",
        (
            f"{tree.name_of(path)}:{number} {line.strip()}"
            for path in tree.source_files()
            for number, line in enumerate(path.read_text().splitlines(), start=1)
            if UNFINISHED.search(line)
        ),
    )


def test_every_module_is_named_after_what_it_holds() -> None:
    tree.assert_none(
        "Name these after what they hold:",
        (
            tree.name_of(path)
            for path in tree.source_files()
            if any(EMPTY_NAMES.fullmatch(part) for part in _module_parts(path))
        ),
    )


def test_every_public_module_says_what_it_is_for() -> None:
    tree.assert_none(
        "Open these modules with a docstring:",
        (
            tree.name_of(path)
            for path in tree.source_files()
            if _is_public(path) and not ast.get_docstring(tree.syntax(path))
        ),
    )


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree.syntax(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _module_parts(path: Path) -> tuple[str, ...]:
    """A module's dotted name in parts; a package's own file counts as the package."""
    parts = path.relative_to(tree.SOURCE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def _is_public(path: Path) -> bool:
    return not any(part.startswith("_") for part in _module_parts(path))

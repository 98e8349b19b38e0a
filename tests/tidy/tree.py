"""The files of this repository, as the tidiness tests see them."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "longshore"
TESTS = ROOT / "tests"

_HIDDEN_BUT_OURS = {".ci", ".github"}
_MADE_BY_TOOLS = {"__pycache__", "build", "dist", "site", "out", "node_modules"}


def source_files() -> list[Path]:
    """Every Python file of the package."""
    return sorted(SOURCE.rglob("*.py"))


def test_files() -> list[Path]:
    """Every Python file of the tests."""
    return sorted(TESTS.rglob("*.py"))


@cache
def all_files() -> list[Path]:
    """Every file that belongs to the repository, leaving out what tools made."""
    return sorted(_walk())


def _walk() -> Iterator[Path]:
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if _is_ours(name)]
        yield from (Path(folder, name) for name in names if name != ".git")


def _is_ours(folder: str) -> bool:
    return folder in _HIDDEN_BUT_OURS or not (folder.startswith(".") or folder in _MADE_BY_TOOLS)


@cache
def syntax(path: Path) -> ast.Module:
    """A Python file, parsed."""
    return ast.parse(path.read_text(), filename=str(path))


def name_of(path: Path) -> str:
    """A file's place in the repository, as a person would write it."""
    return path.relative_to(ROOT).as_posix()


def assert_none(rule: str, offenders: Iterable[str]) -> None:
    """Nobody breaks the rule; else the failure is the rule and the list of those who do."""
    found = list(offenders)
    assert not found, "\n".join([rule, *(f"  {offender}" for offender in found)])

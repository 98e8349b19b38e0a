"""The repository stays usable by a stranger: documented, licensed, pinned, bound to no machine."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.tidy import tree

REQUIREMENTS = tree.ROOT / "requirements"
HOMES = ("work", "root", "home")
PIN = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+")
INCLUDE = re.compile(r"-r [a-z]+\.txt")


def test_no_file_names_a_path_of_some_machine() -> None:
    path_of_a_machine = re.compile(rf"(?<![\w.~*-])/({'|'.join(HOMES)})/")
    tree.assert_none(
        "Make these paths relative, or let the user give them:",
        (
            f"{tree.name_of(path)}:{number} {line.strip()}"
            for path in tree.all_files()
            for number, line in _lines(path)
            if path_of_a_machine.search(line)
        ),
    )


def test_the_licence_is_there() -> None:
    assert "Apache License" in _required("LICENSE")


def test_the_readme_says_how_to_see_it_run_and_how_to_test_it() -> None:
    readme = _required("README.md")
    tree.assert_none(
        "README.md should name:",
        (command for command in ("make demo", "make test") if command not in readme),
    )


def test_every_requirement_is_pinned_and_names_no_registry() -> None:
    tree.assert_none(
        "Write these as name==version:",
        (
            f"{tree.name_of(path)}:{number} {line}"
            for path in sorted(REQUIREMENTS.rglob("*.txt"))
            for number, line in _lines(path)
            if "://" in line or not _is_requirement(line)
        ),
    )


def test_every_dependency_of_the_project_is_among_the_pins() -> None:
    project = _pyproject()["project"]
    wanted = [("runtime", name) for name in project["dependencies"]]
    wanted += [("dev", n) for group in project["optional-dependencies"].values() for n in group]
    tree.assert_none(
        "Pin these dependencies of pyproject.toml:",
        (
            f"{_bare_name(dependency)} in requirements/{part}.txt"
            for part, dependency in wanted
            if _bare_name(dependency) not in _pinned_names(part)
        ),
    )


def test_the_build_uses_the_pinned_tools() -> None:
    """The editable install is built without isolation, so the two lists must agree."""
    pins = (REQUIREMENTS / "runtime.txt").read_text().splitlines()
    tree.assert_none(
        "pyproject.toml asks for another version than requirements/runtime.txt pins:",
        (tool for tool in _pyproject()["build-system"]["requires"] if tool not in pins),
    )


def _required(name: str) -> str:
    path = tree.ROOT / name
    assert path.exists(), f"{name} is missing"
    return path.read_text()


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a text; a binary file has none."""
    try:
        yield from enumerate(path.read_text().splitlines(), start=1)
    except UnicodeDecodeError:
        return


def _is_requirement(line: str) -> bool:
    is_blank = not line or line.startswith("#")
    return is_blank or bool(PIN.fullmatch(line) or INCLUDE.fullmatch(line))


def _pyproject() -> dict[str, Any]:
    return tomllib.loads((tree.ROOT / "pyproject.toml").read_text())


def _pinned_names(part: str) -> set[str]:
    lines = (REQUIREMENTS / f"{part}.txt").read_text().splitlines()
    return {_bare_name(line) for line in lines if PIN.fullmatch(line)}


def _bare_name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match is not None, f"not a requirement: {requirement!r}"
    return re.sub(r"[-_.]+", "-", match[0]).lower()

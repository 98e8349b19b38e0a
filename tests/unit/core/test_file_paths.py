"""Paths of files: which ones are refused, and which are one on some file systems."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshore.core.file_paths import MAX_DEPTH, PathSet, check_path, folded
from longshore.errors import InvalidInput


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../up",
        "a/../../up",
        "a//b",
        "a/./b",
        "a/",
        "..",
        "new\nline",
        "nul\0",
        "bell\x07",
        "not-utf8-\udcff",
        "x" * 256,
        "/".join(["d"] * (MAX_DEPTH + 1)),
        "/".join(["d" * 200] * 6),
    ],
)
def test_hostile_paths_are_refused(path: str) -> None:
    with pytest.raises(InvalidInput):
        check_path(path)


@pytest.mark.parametrize("path", ["a", "a/b.txt", ".hidden", "...", "a b", "ä/ß", "back\\slash"])
def test_ordinary_paths_are_taken(path: str) -> None:
    assert check_path(path) == tuple(path.split("/"))


@pytest.mark.parametrize(
    "paths",
    [
        ("README", "readme"),
        ("caf\u00e9", "cafe\u0301"),
        ("A/one", "a/two"),
        ("data", "data/inner"),
        ("same", "same"),
        ("stra\u00dfe", "strasse"),
    ],
)
def test_two_paths_that_are_one_on_some_file_system_are_refused(paths: tuple[str, ...]) -> None:
    first, second = sorted(paths, key=lambda path: path.split("/"))
    known = PathSet()
    known.add(first)
    with pytest.raises(InvalidInput):
        known.add(second)


def test_paths_out_of_order_are_refused() -> None:
    known = PathSet()
    known.add("b")
    with pytest.raises(InvalidInput, match="out of order"):
        known.add("a")


_name = st.text("aAbBé\u0301\u00e9", min_size=1, max_size=3)


@given(st.lists(st.lists(_name, min_size=1, max_size=3), max_size=12))
def test_a_set_of_paths_takes_exactly_those_whose_folds_are_apart(given_: list[list[str]]) -> None:
    paths = sorted({tuple(parts) for parts in given_})
    known = PathSet()
    try:
        for parts in paths:
            known.add("/".join(parts))
        taken = True
    except InvalidInput:
        taken = False
    assert taken == _are_apart(paths)


def _are_apart(paths: list[tuple[str, ...]]) -> bool:
    """By the definition: no two ways fold to one, and no file is a folder of others."""
    ways = {parts[:count] for parts in paths for count in range(1, len(parts) + 1)}
    folds = {tuple(map(folded, way)) for way in ways}
    no_file_is_a_folder = not any(
        other[: len(one)] == one and other != one for one in paths for other in paths
    )
    return len(folds) == len(ways) and no_file_is_a_folder

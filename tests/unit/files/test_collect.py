"""Collecting a folder that a job filled: all that is meant, and nothing but plain files."""

from __future__ import annotations

import hashlib
import os
import socket
import tracemalloc
from pathlib import Path

import pytest

from longshore.files import beneath
from longshore.files.beneath import opened_folder
from longshore.files.collect import (
    Bounds,
    Collecting,
    Refused,
    Unmatched,
    collect,
)
from longshore.files.patterns import Patterns
from longshore.files.threads import Stopped
from longshore.model.fileset import Manifest

BOUNDS = Bounds(most_bytes=10_000_000, most_files=1_000)


@pytest.fixture(params=["openat2", "by parts"], autouse=True)
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by parts":
        monkeypatch.setattr(beneath, "has_openat2", lambda: False)


def collected(folder: Path, *patterns: str, bounds: Bounds = BOUNDS) -> Manifest:
    with opened_folder(folder) as opened:
        return collect(opened, Patterns(patterns or ("**",)), bounds)


def paths(folder: Path, *patterns: str) -> list[str]:
    return [file.path for file in collected(folder, *patterns).files]


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_files_come_with_their_hash_size_and_executable_bit(tmp_path: Path) -> None:
    write(tmp_path, a="one", sub__b="two")
    (tmp_path / "sub/b").chmod(0o755)
    first, second = collected(tmp_path).files
    assert (first.path, first.size, first.executable) == ("a", 3, False)
    assert first.sha256 == hashlib.sha256(b"one").digest()
    assert (second.path, second.executable) == ("sub/b", True)


def test_equal_folders_are_equal_manifests_in_whatever_order_they_were_written(
    tmp_path: Path,
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    write(one, a="1", sub__b="2")
    write(other, sub__b="2", a="1")
    assert collected(one) == collected(other)


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (("**",), [".dot", "a.txt", "deep/b.csv", "deep/er/c.txt"]),
        (("*",), [".dot", "a.txt"]),
        (("**/*.txt",), ["a.txt", "deep/er/c.txt"]),
        (("deep/",), ["deep/b.csv", "deep/er/c.txt"]),
        (("deep/er/c.txt",), ["deep/er/c.txt"]),
        (("./a.txt", "deep/?.csv"), ["a.txt", "deep/b.csv"]),
        (("**", "!**/*.txt"), [".dot", "deep/b.csv"]),
        (("!deep/",), [".dot", "a.txt"]),
    ],
)
def test_patterns_choose(tmp_path: Path, patterns: tuple[str, ...], found: list[str]) -> None:
    for name in (".dot", "a.txt", "deep/b.csv", "deep/er/c.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert paths(tmp_path, *patterns) == found


def test_a_pattern_that_matches_nothing_says_so_and_what_was_there(tmp_path: Path) -> None:
    write(tmp_path, a="1", sub__b="2")
    with pytest.raises(Unmatched, match=r"nothing matches '\*\.csv'; there are 'a', 'sub/'"):
        collected(tmp_path, "*.csv", "a")


def test_of_many_files_an_error_names_some(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}").touch()
    with pytest.raises(Unmatched, match="'19' and 10 more"):
        collected(tmp_path, "*.csv")


def test_an_empty_folder_has_no_files_to_take(tmp_path: Path) -> None:
    with pytest.raises(Unmatched, match="the folder is empty"):
        collected(tmp_path)


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "a/../../b", "", "!", "x" * 501])
def test_a_pattern_that_leads_out_of_the_folder_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        Patterns((pattern,))


# what is refused


def test_a_link_to_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shadow").symlink_to("/etc/passwd")
    with pytest.raises(Refused, match="'shadow' is a link"):
        collected(tmp_path)


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    write(inside, a="1")
    write(tmp_path / "secret", b="2")
    (inside / "linked").symlink_to(tmp_path / "secret")
    assert paths(inside, "a") == ["a"]
    with pytest.raises(Refused, match="'linked' is a link"):
        collected(inside)
    with pytest.raises(Unmatched, match=r"'linked \(a link\)'"):
        collected(inside, "linked/b")


def test_a_folder_behind_a_link_cannot_be_opened(tmp_path: Path) -> None:
    write(tmp_path / "secret", b="2")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "out").symlink_to(tmp_path / "secret")
    for way in (("out",), ("out", "b")):
        with pytest.raises(beneath.IsLink), opened_folder(mine, way):
            pass


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refused, match="'pipe' is a FIFO"):
        collected(tmp_path)


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")
        with pytest.raises(Refused, match="'s' is a socket"):
            collected(tmp_path)


def test_a_device_is_refused() -> None:
    with pytest.raises(Refused, match="'null' is a device"):
        collected(Path("/dev"), "null", bounds=Bounds(1_000, 100_000))


def test_a_sparse_terabyte_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(Refused, match="max_fileset_bytes"):
        collected(tmp_path)


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / str(number)).touch()
    with pytest.raises(Refused, match="max_fileset_files"):
        collected(tmp_path, bounds=Bounds(1_000, 3))


def test_a_flood_of_entries_that_nobody_asked_for_is_refused(tmp_path: Path) -> None:
    for number in range(1_010):
        (tmp_path / f"{number}.tmp").touch()
    with pytest.raises(Refused, match="max_fileset_files"):
        collected(tmp_path, "*.csv", bounds=Bounds(1_000, 1))


def test_folders_that_no_pattern_means_are_not_entered(tmp_path: Path) -> None:
    write(tmp_path, out__a="1")
    flood = tmp_path / "node_modules"
    flood.mkdir()
    for number in range(1_010):
        (flood / f"{number}").touch()
    assert [f.path for f in collected(tmp_path, "out/*", bounds=Bounds(99, 1)).files] == ["out/a"]


def test_folders_too_deep_are_refused(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 70)
    deep.mkdir(parents=True)
    with pytest.raises(Refused, match="folders deep"):
        collected(tmp_path)


def test_names_that_collide_are_refused(tmp_path: Path) -> None:
    write(tmp_path, README="1", readme="2")
    with pytest.raises(Refused, match=r"'README' and 'readme' are the same name"):
        collected(tmp_path)


def test_names_written_with_other_accents_collide(tmp_path: Path) -> None:
    (tmp_path / "caf\u00e9").touch()
    (tmp_path / "cafe\u0301").touch()
    with pytest.raises(Refused, match="same name"):
        collected(tmp_path)


def test_folders_collide_only_if_files_of_both_are_taken(tmp_path: Path) -> None:
    write(tmp_path, Out__a="1", out__b="2")
    assert paths(tmp_path, "out/*") == ["out/b"]
    with pytest.raises(Refused, match="same name"):
        collected(tmp_path)


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9")).touch()
    with pytest.raises(Refused, match="not UTF-8"):
        collected(tmp_path)


def test_a_name_with_a_line_break_is_refused(tmp_path: Path) -> None:
    (tmp_path / "two\nlines").touch()
    with pytest.raises(Refused, match="control character"):
        collected(tmp_path)


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 3_000_000)

    def grow(count: int) -> None:
        with path.open("ab") as file:
            file.write(b"y" * 3_000_000)

    with opened_folder(tmp_path) as folder, pytest.raises(Refused, match="changed"):
        collect(folder, Patterns(), BOUNDS, Collecting(on_bytes=grow))


def test_a_collection_that_nobody_wants_stops(tmp_path: Path) -> None:
    write(tmp_path, a="1")
    with opened_folder(tmp_path) as folder, pytest.raises(Stopped):
        collect(folder, Patterns(), BOUNDS, Collecting(is_stopped=lambda: True))


def test_memory_holds_entries_and_no_bytes(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / str(number)).write_bytes(bytes(200_000))
    tracemalloc.start()
    try:
        collected(tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_500_000, "40 files of 200 kB must not be held"

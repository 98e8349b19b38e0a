"""A worker's cache: bounded, the oldest go first, shared by processes, never a foreign folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from longshore.errors import ConfigError
from longshore.files.cache import BlobCache


def add(cache: BlobCache, text: str) -> bytes:
    sha256 = hashlib.sha256(text.encode()).digest()
    part = cache.part(sha256)
    part.write_text(text)
    cache.adopt(part, sha256)
    return sha256


def read(cache: BlobCache, sha256: bytes) -> bytes | None:
    found = cache.open(sha256)
    if found is None:
        return None
    try:
        return os.read(found, 1_000)
    finally:
        os.close(found)


def test_what_is_kept_is_found(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "cache", 100)
    one = add(cache, "one")
    assert read(cache, one) == b"one"
    assert read(BlobCache(tmp_path / "cache", 100), one) == b"one"
    assert read(cache, bytes(32)) is None


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 100)
    old, used = add(cache, "a" * 40), add(cache, "b" * 40)
    for number, sha256 in enumerate((old, used)):
        os.utime(cache._path(sha256), ns=(number, number))
    assert read(cache, old) is not None, "which makes it the newest"
    new = add(cache, "c" * 40)
    assert (cache.has(used), cache.has(old), cache.has(new)) == (False, True, True)


def test_a_blob_that_is_being_read_may_go(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 10)
    one = add(cache, "12345678")
    found = cache.open(one)
    assert found is not None
    add(cache, "abcdefgh")
    assert not cache.has(one)
    assert os.read(found, 100) == b"12345678"
    os.close(found)


def test_several_processes_keep_one_bound(tmp_path: Path) -> None:
    code = """
import hashlib, sys
from pathlib import Path
from longshore.files.cache import BlobCache
cache = BlobCache(Path(sys.argv[1]), 10_000)
for number in range(100):
    data = f"{sys.argv[2]}-{number}-".encode().ljust(500, b"x")
    sha256 = hashlib.sha256(data).digest()
    cache.part(sha256).write_bytes(data)
    cache.adopt(cache.part(sha256), sha256)
"""
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name]) for name in "abcd"
    ]
    assert [one.wait() for one in running] == [0] * 4
    held = [path.stat().st_size for path in tmp_path.glob("??/*")]
    assert 0 < sum(held) <= 10_000


def test_a_count_that_a_crash_left_too_high_is_corrected(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 100)
    one = add(cache, "one")
    (tmp_path / "total").write_text("00000000000000000099")
    add(cache, "two")
    assert cache.has(one), "there was room all along"


def test_a_damaged_blob_is_dropped(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 100)
    one = add(cache, "one")
    cache.drop(one)
    cache.drop(one)
    assert not cache.has(one)


def test_a_folder_with_other_files_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(ConfigError, match="not empty"):
        BlobCache(tmp_path, 100)

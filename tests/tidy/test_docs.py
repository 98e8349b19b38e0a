"""The docs say what is there: links lead somewhere, and what follows from the code is not stale."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.tidy import tree

LINK = re.compile(r"\]\(([^)\s]+)\)")
RUNNABLE = re.compile(r"^```(python|console|toml|sql|json)$", re.MULTILINE)
MEASURES = {"performance.md"}
"""Pages whose commands take hours."""
NAMED_FILE = re.compile(r"`((?:tests|scripts|examples|bench|src)/[\w/.-]+\.\w+)`")


def test_every_link_between_files_leads_somewhere() -> None:
    tree.assert_none(
        "These links lead nowhere:",
        (
            f"{tree.name_of(page)}: {link}"
            for page in _pages()
            for link in LINK.findall(_prose(page))
            if not link.startswith(("#", "http://", "https://"))
            if not (page.parent / link.partition("#")[0]).exists()
        ),
    )


def test_every_file_that_a_page_names_is_there() -> None:
    tree.assert_none(
        "These files are not there:",
        (
            f"{tree.name_of(page)}: {name}"
            for page in _pages()
            for name in NAMED_FILE.findall(page.read_text())
            if not (tree.ROOT / name).exists()
        ),
    )


def test_the_reference_is_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/reference.py", "--check"],
        cwd=tree.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_page_with_blocks_that_can_be_run_has_a_test_that_names_it() -> None:
    tests = "".join(path.read_text() for path in tree.test_files() if path != Path(__file__))
    tree.assert_none(
        "Run the blocks of these pages in a test:",
        (
            tree.name_of(page)
            for page in (tree.ROOT / "docs").rglob("*.md")
            if RUNNABLE.search(page.read_text()) and page.name not in tests
            if page.name not in MEASURES
        ),
    )


def _pages() -> Iterator[Path]:
    return (path for path in tree.all_files() if path.suffix == ".md")


def _prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)

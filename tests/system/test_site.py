"""The docs build as a site, strictly, and the site asks nobody else for anything."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MKDOCS = ROOT / ".venvs" / "docs" / "bin" / "mkdocs"
FETCHED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^>]*>")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, from the docs as they are."""
    assert MKDOCS.exists(), "what makes the site is not installed; run: scripts/setup docs"
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: it hides warnings from --strict too.
    done = subprocess.run(
        [str(MKDOCS), "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    docs = ROOT / "docs"
    pages = [page.relative_to(docs) for page in docs.rglob("*.md")]
    names = [page.with_suffix(".html").as_posix().replace("README", "index") for page in pages]
    names += ["ARCHITECTURE.html", "CONTRIBUTING.html", "CHANGELOG.html"]
    assert [name for name in names if not (site / name).exists()] == []


def test_reading_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    found = {tag for page in site.rglob("*.html") for tag in FETCHED.findall(page.read_text())}
    assert found == set()
    sheets = [sheet.read_text() for sheet in site.rglob("*.css")]
    assert sheets
    sheets += [picture.read_text() for picture in site.rglob("*.svg")]
    assert not [sheet for sheet in sheets if re.search(r"url\(['\"]?(https?:)?//", sheet)]


def test_search_works_in_pages_that_are_opened_as_files(site: Path) -> None:
    """Nobody starts a web worker, and nothing can be fetched, there."""
    assert (site / "search" / "search_index.js").read_text().startswith("var __index = {")
    for page in site.rglob("*.html"):
        scripts = re.findall(r'<script src="([^"]+)"', page.read_text())
        assert scripts[0].endswith("assets/iframe-worker.js"), page.name
        if page.name != "404.html":  # that one is for servers
            assert (page.parent / scripts[0]).exists()


def test_lists_and_tables_are_not_swallowed_by_the_text_before_them(site: Path) -> None:
    """A code host is more lenient than the site: it needs no blank line before a list."""
    for page in site.rglob("*.html"):
        text = re.sub(r"<pre.*?</pre>", "", page.read_text(), flags=re.DOTALL)
        assert not re.search(r"<p>(?:(?!</p>).)*\n(?:- |\| )", text, re.DOTALL), page.name

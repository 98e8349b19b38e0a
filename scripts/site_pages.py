"""What the site has beside docs/: pages at the root of the repository, programs, every decision.

On a code host these are links out of docs/. MkDocs knows only what is in it, so its build is told
of them here (`hooks` in mkdocs.yml), at the same paths as in the repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
ROOT_PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
UPWARDS = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)")
DECISIONS = "decisions/"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists every decision where the navigation says `decisions/`."""
    pages = sorted((DOCS / DECISIONS).glob("0*.md"))
    decisions: list[Any] = [f"{DECISIONS}README.md"]
    decisions += [{_title(page): f"{DECISIONS}{page.name}"} for page in pages]
    for section in config.nav or []:
        for place, item in enumerate(section.get("Internals", ())):
            if DECISIONS in item.values():
                section["Internals"][place] = dict.fromkeys(item, decisions)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what docs/ links to outside of itself."""
    for name in ROOT_PAGES:
        text = (ROOT / name).read_text()
        text = text.replace("](docs/decisions)", "](docs/decisions/README.md)")
        files.append(File.generated(config, name, content=text.replace("](docs/", "](")))
    for path in sorted({path for page in DOCS.rglob("*.md") for path in _outside(page)}):
        if path.suffix != ".md":
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Leads links out of docs/ to where `on_files` put what they name."""
    source = DOCS / page.file.src_uri
    outside = set(_outside(source)) if source.exists() else set()

    def lead(found: re.Match[str]) -> str:
        is_outside = (source.parent / found[1]).resolve() in outside
        return f"]({found[1].removeprefix('../')}" if is_outside else found[0]

    return UPWARDS.sub(lead, markdown)


def _outside(page: Path) -> Iterator[Path]:
    """The files of the repository, but not of docs/, that a page links to."""
    for link in UPWARDS.findall(page.read_text()):
        path = (page.parent / link).resolve()
        if path.is_file() and path.is_relative_to(ROOT) and not path.is_relative_to(DOCS):
            yield path


def _title(page: Path) -> str:
    return page.read_text().partition("\n")[0].removeprefix("# ")

"""docs/files.md, block by block, against a real `longshore up`."""

from __future__ import annotations

import re
from pathlib import Path

from longshore.config import load
from longshore.testing.processes import Process, settings
from tests.system.conftest import ANY, QUICK
from tests.system.pages import SERVED, bash, blocks, matches


def test_every_command_of_the_files_page_answers_what_it_says(tmp_path: Path) -> None:
    words = ["--backend", ANY, "--frontend", ANY, "--http", ANY, *settings(**QUICK)]
    count = 0
    with Process("up", *words, cwd=tmp_path, log=tmp_path / "up.log") as up:
        url = up.ready().facts["http"]
        env = {"LONGSHORE_FILES_URL": url, "XDG_CACHE_HOME": str(tmp_path / "home")}
        for block in blocks("files.md", "console"):
            for command, shown in block.commands():
                answered = bash(command.replace(SERVED, url), tmp_path, env)
                assert matches(_loose(shown), _loose(answered)), (
                    f"{command}\n{answered}\nis not\n{shown}"
                )
                count += 1
    assert count == 18


def _loose(text: str) -> str:
    """A text without what differs: times, and the sizes of what went over the wire."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "(then)", text)
    return re.sub(r"\d+ B (sent|fetched)", r"\1", text)


def test_the_settings_of_the_files_page_can_be_read(tmp_path: Path) -> None:
    (block,) = blocks("files.md", "toml")
    (tmp_path / "longshore.toml").write_text(block.text)
    config = load(file=str(tmp_path / "longshore.toml"), environ={})
    assert len(config.filesets.files_url) == 2

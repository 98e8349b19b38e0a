"""docs/security.md, block by block, against a real `longshore up`."""

from __future__ import annotations

from pathlib import Path

from longshore.testing.processes import Process, settings
from tests.system.conftest import ANY, QUICK
from tests.system.pages import SERVED, bash, blocks, matches


def test_every_command_of_the_security_page_answers_what_it_says(tmp_path: Path) -> None:
    (app,) = blocks("http.md", "python")
    (tmp_path / "greet.py").write_text(app.text)
    words = ["--app", "greet:app", "--backend", ANY, "--frontend", ANY, "--http", ANY]
    count = 0
    with Process("up", *words, *settings(**QUICK), cwd=tmp_path, log=tmp_path / "up.log") as up:
        facts = up.ready().facts
        env = {"LONGSHORE_CONNECT": facts["frontend"]}
        for block in blocks("security.md", "console"):
            for command, shown in block.commands():
                answered = bash(command.replace(SERVED, facts["http"]), tmp_path, env)
                assert matches(shown, answered), f"{command}\n{answered}\nis not\n{shown}"
                count += 1
        secrets = [file.read_text().strip() for file in tmp_path.glob("*.token")]
        assert len(secrets) == 2
        assert all(secret.startswith("ls_") for secret in secrets)
        assert not any(secret in up.said() for secret in secrets)
    assert count == 9

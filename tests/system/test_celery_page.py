"""docs/coming-from-celery.md: Longshore's half of each comparison runs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from longshore.testing.processes import Process, run, settings
from tests.system.conftest import ANY, QUICK
from tests.system.pages import blocks, succeed

PYTHON = [block.text for block in blocks("coming-from-celery.md", "python")]
OURS = [text for text in PYTHON if not text.startswith(("# Celery\n", "# Dramatiq\n"))]


def test_the_other_half_of_each_comparison_is_python() -> None:
    theirs = [text for text in PYTHON if text not in OURS]
    assert len(theirs) == 3
    for text in theirs:
        compile(text, "coming-from-celery.md", "exec")


def test_what_stands_beside_celery_runs(tmp_path: Path) -> None:
    shop, *scripts, _ = OURS
    (tmp_path / "shop.py").write_text(shop)
    (console,) = blocks("coming-from-celery.md", "console")
    ((command, _),) = console.commands()
    _, role, *words = shlex.split(command)
    words += ["--backend", ANY, "--frontend", ANY, *settings(**QUICK)]
    with Process(role, *words, cwd=tmp_path, log=tmp_path / "up.log") as up:
        env = {"LONGSHORE_CONNECT": up.ready().facts["frontend"]}
        for script in scripts:
            succeed(script, env, tmp_path)
        assert "settle begins" in up.said()
        reminders = json.loads(run("jobs", "--kind", "remind", "--json", env=env).stdout)
        assert len(reminders) == 16, "one cancelled, ten of many, one of a job, four of threads"
    assert len(scripts) == 3


def test_what_stands_beside_dramatiq_runs(tmp_path: Path) -> None:
    (tmp_path / "mail.py").write_text(OURS[-1])
    script = """
from longshore.testing import run_inline
from mail import app, main, remind

with run_inline(app) as kit:
    main()
    assert kit.drain() == 1
    kit.advance(60)
    assert kit.drain() == 1
"""
    succeed(script, {}, tmp_path)

"""docs/metrics.md, block by block, against a real `longshore up`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from longshore.testing.processes import Process, await_true, settings
from tests.system.conftest import ANY, QUICK
from tests.system.pages import bash, blocks, matches, succeed

SHOWN = "http://127.0.0.1:7703"


def spans(path: Path) -> list[dict[str, Any]]:
    """The spans that a process wrote to a file."""
    text, found = path.read_text() if path.exists() else "", []
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        try:
            span, end = decoder.raw_decode(text)
        except json.JSONDecodeError:
            break  # the rest is being written
        found.append(span)
        text = text[end:]
    return found


def test_page_of_metrics_shows_what_is_there(tmp_path: Path) -> None:
    (traced,) = blocks("metrics.md", "python")
    (tmp_path / "traced.py").write_text(traced.text)
    words = ["--app", "traced:app", "--backend", ANY, "--frontend", ANY, "--http", ANY]
    words += ["--metrics", ANY, *settings(**QUICK)]
    log, written = tmp_path / "up.log", tmp_path / "spans"
    env = {"SPANS": str(written)}
    with Process("up", *words, cwd=tmp_path, log=log, env=env) as up:
        facts = up.ready().facts
        script = (
            "from traced import app, count, weigh\n"
            "assert weigh.submit('tea').result(30) == 3\n"
            "print(count.submit('tea').result(30))\n"
        )
        own = {"LONGSHORE_CONNECT": facts["frontend"], "SPANS": str(tmp_path / "sent")}
        [parent] = succeed(script, own, tmp_path)
        await_true(lambda: len(spans(written)) == 2, "both attempts have their spans")
        commands = [one for block in blocks("metrics.md", "console") for one in block.commands()]
        asked = [(command, shown) for command, shown in commands if command.startswith("curl")]
        for command, shown in asked:
            answered = bash(command.replace(SHOWN, facts["metrics"]))
            assert matches(shown, answered), f"{command}\n{answered}\nis not\n{shown}"
    assert (len(commands), len(asked)) == (3, 2)
    sent = {str(span["name"]): span for span in spans(tmp_path / "sent")}
    assert sent.keys() == {"submit weigh", "submit count"}
    for span in spans(written):
        kind = str(span["name"]).removeprefix("process ")
        assert [link["context"] for link in span["links"]] == [sent[f"submit {kind}"]["context"]]
    assert parent.split("-")[1] == sent["submit count"]["context"]["trace_id"].removeprefix("0x")

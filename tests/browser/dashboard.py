"""A browser that looks at the dashboard of a real `longshore up`."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from longshore.testing.processes import Process, settings
from tests.system.conftest import ANY, APPS, QUICK, QUICK_WORKER

CHECKS = Path(__file__).with_name("checks.js").read_text()
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@contextmanager
def launched() -> Iterator[Browser]:
    """Debian's chromium, without a window."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "there is no chromium; scripts/setup browser installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Site:
    """A dashboard, and the API beside it."""

    def __init__(self, process: Process, store: Path) -> None:
        self.url: str = process.facts["http"]
        self.process = process
        self.store = store

    def call(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """What a program gets of the API."""
        place = self.url.removeprefix("http://")
        with closing(http.client.HTTPConnection(place, timeout=30)) as link:
            given = {"Content-Type": "application/json", **headers} if body is not None else headers
            link.request(method, path, None if body is None else json.dumps(body), given)
            return json.loads(link.getresponse().read())

    def submit(self, kind: str, **args: Any) -> int:
        """Submits a job; its number."""
        number: int = self.call("POST", "/dispatcher/jobs/", {"kind": kind, "args": args})["number"]
        return number

    def done(self, number: int) -> str:
        """Waits until a job has ended; its state."""
        state: str = self.call("GET", f"/dispatcher/jobs/{number}/result?wait_s=30")["state"]
        return state


@contextmanager
def running(folder: Path, *words: str, **more: object) -> Iterator[Site]:
    """A `longshore up` with the harbour app."""
    own = ["--app", "harbour:app", "--backend", ANY, "--frontend", ANY, "--http", ANY]
    own += ["--store", f"sqlite:///{folder}/store.db"]
    own += settings(**{**QUICK, **QUICK_WORKER, "stream_poll_s": 0.05, **more})
    with Process("up", *own, *words, cwd=APPS, log=folder / "up.log") as process:
        yield Site(process.ready(), folder / "store.db")


def watched(page: Page) -> list[str]:
    """What goes wrong in a page from now on: errors of scripts, and what its policy forbids."""
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    return wrong


def faults(page: Page) -> list[str]:
    """What is hard to use for somebody in a page: labels, contrast, structure, width."""
    found: list[str] = page.evaluate(f"({CHECKS})()")
    return found

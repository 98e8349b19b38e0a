"""`longshore init`: writes a small app to begin with."""

from __future__ import annotations

from pathlib import Path

import click

from longshore.cli.options import examples, json_option
from longshore.cli.view.show import print_answer
from longshore.errors import InvalidInput

_APP = '''"""The jobs of this app. Run them with `longshore up`, in this folder."""

import asyncio

import longshore

app = longshore.App("{name}")


@app.job(retries=3)
async def greet(name: str) -> str:
    """An async def job: many run at once, in one process."""
    await asyncio.sleep(0.1)
    return f"hello, {{name}}"


@app.job(timeout_s=60)
def count_words(text: str) -> int:
    """A plain def job: each runs in a process of its own."""
    words = text.split()
    for done, _ in enumerate(words, start=1):
        longshore.current().progress(done, len(words), "words")
    return len(words)
'''

_CONFIG = """# Settings of the `longshore` commands that run in this folder.

app = "app:app"
workers = 1
slots = 100

# Where jobs are kept; this is the default. On several machines: postgresql://user@host/database
store = "sqlite:///.longshore/longshore.db"
"""

_TEST = '''"""Jobs are functions: called as such, they run here and now. Run this with pytest."""

import asyncio

from app import greet


def test_greet_says_hello() -> None:
    assert asyncio.run(greet("Ada")) == "hello, Ada"
'''


@click.command(
    name="init", epilog=examples("longshore init", "longshore init thumbnails", "longshore init .")
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
@json_option
def init(folder: Path, as_json: bool) -> None:
    """Write a small app to begin with.

    FOLDER, or the current folder, gets app.py with two jobs, longshore.toml with settings, and
    test_app.py. A FOLDER that does not exist is made. No file is ever overwritten.
    """
    texts = _texts(folder)
    _refuse_overwriting(folder, texts)
    written = [str(_write(folder, name, text)) for name, text in texts.items()]
    first = "" if folder == Path() else f" (cd {folder} first)"
    words = [
        *(f"wrote {path}" for path in written),
        f"\nRun it{first}, and a job of it in another terminal:",
        "  longshore up\n  longshore submit greet name=Ada --wait",
    ]
    print_answer(as_json, {"folder": str(folder), "files": written}, "\n".join(words))


def _texts(folder: Path) -> dict[str, str]:
    name = folder.resolve().name or "app"
    plain = "".join(char for char in name if char.isalnum() or char in "-_. ")
    return {
        "app.py": _APP.format(name=plain or "app"),
        "longshore.toml": _CONFIG,
        "test_app.py": _TEST,
    }


def _refuse_overwriting(folder: Path, texts: dict[str, str]) -> None:
    there = [name for name in texts if (folder / name).exists()]
    if there:
        raise InvalidInput(
            f"{folder.resolve()} has {', '.join(there)} already, so nothing was written; "
            "name another folder: longshore init FOLDER"
        )


def _write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}; name another folder") from None
    return path

"""Commands as jobs, without a container engine: `python examples/concordance.py`.

Starts `longshore up --exec` on a temporary store. Counts the words of three verses by standard
programs, one command for each verse, and adds up what they found; makes an index of files, which
are pushed before and pulled after it; runs a command that asks to be tried again; and one of its
own with `longshore exec`. Exits with 0 only if all is as it should be.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same modules, by their names from the repository's root
    from examples.concordance_app import app, count, flaky, index, merge
    from examples.demo import LONGSHORE, longshore_up
else:
    from concordance_app import app, count, flaky, index, merge
    from demo import LONGSHORE, longshore_up

HTTP = ("--http", "127.0.0.1:0")
VERSES = (
    "The sea is calm to-night. The tide is full, the moon lies fair",
    "Upon the straits; on the French coast the light",
    "Gleams and is gone; the cliffs of England stand",
)


def main() -> int:
    """Runs the example; answers its exit code."""
    with (
        tempfile.TemporaryDirectory(prefix="longshore-words-") as folder,
        longshore_up(Path(folder), "concordance_app:app", "--exec", *HTTP) as ready,
    ):
        os.environ["LONGSHORE_CONNECT"] = ready["frontend"]
        with app:
            counted = count_words()
            indexed = make_an_index(Path(folder), ready["http"])
            tried = try_again()
        done = counted == 7 and indexed == 32 and tried == 3
        return 0 if done and run_a_command() == 3 else 1


def count_words() -> int:
    """How often "the" is in the verses, counted by one command for each."""
    with app.group("concordance") as group:
        parts = [group.add(count.call(text=verse, most=2)) for verse in VERSES]
        group.add(merge.call(parts=[part.result for part in parts]), key="all")
    total = group.handle.result("all", 60)
    print(f"the most frequent words: {total}")
    return int(total["the"])


def make_an_index(folder: Path, gateway: str) -> int:
    """How many words a command found in files that are pushed, and whose index is pulled."""
    (folder / "verses").mkdir()
    for number, verse in enumerate(VERSES, 1):
        (folder / f"verses/{number}.txt").write_text(verse + "\n")
    filesets(gateway, "push", "verses", str(folder / "verses"))
    index.submit().result(60)
    filesets(gateway, "pull", "index", str(folder / "pulled"))
    return len((folder / "pulled/index.txt").read_text().splitlines())


def filesets(gateway: str, *words: str) -> None:
    """Moves files by hand."""
    print(f"$ longshore filesets {' '.join(words)}", flush=True)
    subprocess.run([*LONGSHORE, "filesets", *words, "--connect", gateway], check=True)


def try_again() -> int:
    """How many attempts a command took that asks to be tried again."""
    handle = flaky.submit()
    handle.result(60)
    print("\n".join(line.text for line in handle.logs() if line.stream == "stdout"))
    return handle.job().attempt


def run_a_command() -> int:
    """The exit code of a command that nobody declared."""
    words = ["exec", "--", "sh", "-c", "echo any command, and its exit code; exit 3"]
    print(f"$ longshore {' '.join(words)}", flush=True)
    return subprocess.run([*LONGSHORE, *words], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

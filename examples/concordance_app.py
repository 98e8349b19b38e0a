"""The jobs of `concordance.py`: standard programs of a Unix machine, and one function."""

from __future__ import annotations

import longshore

app = longshore.App("concordance")

COUNT = r"""
tr -cs '[:alpha:]' '\n' | tr '[:upper:]' '[:lower:]' | sort | uniq -c | sort -rnk1 | head -n "$1" |
awk 'BEGIN {{ printf "[" }} {{ printf "%s[\"%s\", %s]", s, $2, $1; s = "," }} END {{ print "]" }}' \
> "$LONGSHORE_RESULT"
"""

count = app.command(
    "count", ["sh", "-c", COUNT, "-", "{most}"], stdin="{text}", defaults={"most": 3}
)

# It reads the files of one fileset, and what it leaves becomes a version of another.
index = app.command(
    "index",
    ["sh", "-c", "mkdir made; grep -on '[[:alpha:]]*' verses/* | sort -t: -k3f > made/index.txt"],
    inputs=[{"fileset": "verses", "path": "verses"}],
    outputs=[{"fileset": "index", "path": "made"}],
)

# Exit code 75 means "try again": it does so twice before it works.
flaky = app.command(
    "flaky",
    ["sh", "-c", 'echo "try $LONGSHORE_ATTEMPT"; [ "$LONGSHORE_ATTEMPT" -ge 3 ] || exit 75'],
    on=[longshore.exit(75).retry(5)],
    backoff_s=0.1,
)


@app.job
async def merge(parts: list[list[tuple[str, int]]]) -> dict[str, int]:
    """Adds up what the commands counted."""
    total: dict[str, int] = {}
    for word, number in (pair for part in parts for pair in part):
        total[word] = total.get(word, 0) + number
    return total

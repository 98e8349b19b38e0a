"""An app whose jobs are commands."""

from __future__ import annotations

import longshore

app = longshore.App("tools")

words = app.command("words", ["sh", "-c", 'wc -w > "$LONGSHORE_RESULT"'], stdin="{text}")
flaky = app.command(
    "flaky",
    ["sh", "-c", 'echo x >> "$1"; [ $(wc -l < "$1") -ge 3 ] || exit 75', "-", "{marks}"],
    on=["exit(75): retry(5)"],
    backoff_s=0.01,
)
crashes = app.command("crashes", ["sh", "-c", 'echo x >> "$1"; kill -9 $$', "-", "{marks}"])
_UNTIL_THIRD = 'echo $$ >> "$1"; [ $(wc -l < "$1") -ge 3 ] || sleep 600'
lasting = app.command("lasting", ["sh", "-c", _UNTIL_THIRD, "-", "{marks}"])
free = app.command(
    "free", ["sh", "-c", _UNTIL_THIRD, "-", "{marks}"], on=[longshore.lost.retry_free]
)
noop = app.command("noop", ["true"])


@app.job
async def double(number: int) -> int:
    """A job that is a function, beside the commands."""
    return number * 2

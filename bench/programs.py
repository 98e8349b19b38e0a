"""Programs: commands that do nothing, beside bare processes that start the same command in a loop.

A command of Longshore has a job around it: it is submitted, recorded, has a folder and a log, and
its whole process tree is looked for when it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from msgspec import Struct

from bench.fleet import fleet
from bench.helper import Helper
from bench.pairs import Ratio, interleave
from bench.stage import Stage

APP = "bench.command_app:app"
KIND = "noop_command"
WORKERS = 2
"""Each has one process that starts commands: so many bare ones there are."""


class Programs(Struct, frozen=True):
    """What was measured: commands per second on PostgreSQL, beside those of bare processes."""

    jobs: int
    commands: Ratio


def measure(stage: Stage) -> Programs:
    """Ours and the bare ones in turn."""
    jobs = stage.sizes.command_jobs
    with ExitStack() as stack:
        url = stack.enter_context(stage.fresh("postgres"))
        ours = stack.enter_context(fleet(url, stage.folder, workers=WORKERS, app=APP))
        bare = [stack.enter_context(Helper("spawner")) for _ in range(WORKERS)]
        ours.run(jobs, KIND)
        ratio = interleave(
            stage.sizes.pairs, lambda: ours.run(jobs, KIND), lambda: _bare_rate(bare, jobs)
        )
    stage.say(f"commands: {ratio.one:,.0f}/s, {ratio.median:.2f} of bare processes")
    return Programs(jobs, ratio)


def _bare_rate(bare: Sequence[Helper], jobs: int) -> float:
    """Commands per second of bare processes, all at once."""
    for helper in bare:
        helper.tell(do="run", jobs=jobs // len(bare))
    times = [helper.answer() for helper in bare]
    return jobs / float(max(time[1] for time in times) - min(time[0] for time in times))

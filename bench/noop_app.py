"""The job that is measured: it does nothing."""

import longshore

app = longshore.App("bench")


@app.job
async def noop(data: str) -> None:
    """Does nothing, asynchronously."""


@app.job
def noop_process(data: str) -> None:
    """Does nothing, in a child process."""

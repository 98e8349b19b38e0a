"""DBOS on PostgreSQL: a graph in layers, as steps of one workflow. See `bench.groups`.

A step is what DBOS records of a part of a workflow: it runs in the workflow's process, and its
result is kept. Steps that run at once must begin in a fixed order, or a recovered workflow would
not know them again. So a layer begins when all of the one before has ended.
"""

import asyncio
import sys
import time

from dbos import DBOS

DATA = "x" * 100


async def noop(data: str) -> None:
    """Does nothing."""


async def graph(layers: int, width: int) -> None:
    """Runs the whole graph."""
    step = DBOS.step(name="noop")(noop)
    for _ in range(layers):
        await asyncio.gather(*(step(DATA) for _ in range(width)))


async def run(layers: int, width: int) -> float:
    """Seconds until the result of the whole is recorded."""
    workflow = DBOS.workflow(name="graph")(graph)
    await (await DBOS.start_workflow_async(workflow, 1, width)).get_result()
    began = time.monotonic()
    await (await DBOS.start_workflow_async(workflow, layers, width)).get_result()
    return time.monotonic() - began


if __name__ == "__main__":
    url, layers, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "application_version": "1",
            "log_level": "WARNING",
            "sys_db_pool_size": 20,
        }
    )
    DBOS.launch()
    print(asyncio.run(run(layers, width)), flush=True)
    DBOS.destroy()

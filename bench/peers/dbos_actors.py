"""DBOS on PostgreSQL: messages by `send` to workflows that `recv`. See `bench.actors`.

DBOS has no bulk send: each is a transaction of its own, and many are under way at a time. A
workflow ends when it has received its messages; all is done when the last one has.
"""

import asyncio
import sys
import time

from dbos import DBOS, SetWorkflowID

DATA = "x" * 100
AT_ONCE = 20
PATIENCE_S = 80


@DBOS.workflow()
async def counter(messages: int) -> int:
    """Counts its messages."""
    count = 0
    while count < messages:
        if await DBOS.recv_async("add", timeout_seconds=PATIENCE_S) is None:
            raise TimeoutError("no message came")
        count += 1
    return count


async def run(messages: int, actors: int) -> float:
    """Seconds until all messages are counted."""
    each = messages // actors
    handles = []
    for number in range(actors):
        with SetWorkflowID(f"actor-{number}"):
            handles.append(await DBOS.start_workflow_async(counter, each))
    began = time.monotonic()
    places = iter(range(each * actors))

    async def send() -> None:
        for place in places:
            await DBOS.send_async(f"actor-{place % actors}", DATA, "add")

    await asyncio.gather(*(send() for _ in range(AT_ONCE)))
    counts = [await handle.get_result() for handle in handles]
    assert sum(counts) == each * actors
    return time.monotonic() - began


async def main() -> None:
    """Measures within one process, which is also the worker."""
    url, messages, actors = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    config = {"name": "bench", "system_database_url": url, "log_level": "ERROR"}
    DBOS(config={**config, "sys_db_pool_size": 20})
    DBOS.launch()
    print(await run(messages, actors), flush=True)
    DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main())

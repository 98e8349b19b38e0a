"""How a job's body is run.

A worker's agent process never imports an app: nothing that a job does can stop its heartbeat. The
app lives in *host* processes, which the agent starts and, when need be, kills:

    agent                                  host (`python -m longshore.executors.host.main`)
    coroutine.CoroutineExecutor ─ frames ─ coroutine_host   one, many `async def` jobs at once
    child.ProcessExecutor         ─ frames ─ child_host       several, one plain `def` job at a time

`frames` is what they say to each other, `process` starts and ends a host, `channel` carries frames
on an event loop, `loading` finds the apps, `lifespan` opens and closes what they want open,
`context` is what a job's code sees of Longshore, `scratch` its folders.
"""

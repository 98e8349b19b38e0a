"""How a job's body is run.

A worker's agent never imports an app, so no job can stop its heartbeat. The app lives in *host*
processes, which the agent starts and, when it must, kills:

    agent                                  host (`python -m longshore.executors.host.main`)
    coroutine.CoroutineExecutor ─ frames ─ host/coroutine   one, many `async def` jobs at once
    process.ProcessExecutor     ─ frames ─ host/child       several, one plain `def` job at a time
    thread.ThreadExecutor       ─ frames ─ host/thread      one, many plain `def` jobs at once
    program.CommandExecutor     ─ frames ─ host/programs    one, many commands at once
    container.ContainerExecutor ─ frames ─ host/programs    one, many containers at once

`hosted` is what the executors share (`shared`: those with one host), `host/host` what the hosts
share. `frames` is what agent and host say to each other, `attempt_queue` is where a process of one
job at a time finds the next. `host_process` starts and ends a host, `channel` carries frames on an
event loop. `host/apps` finds the apps, `host/lifespan` opens and closes their resources,
`host/gathering` has the jobs that share a run. `host/context` is what a job's code sees of
Longshore, `scratch` its folders. `left_behind` kills what a host of programs left when it was
killed. `successors` is how a new agent finds the host of containers that outlived the old one.
"""

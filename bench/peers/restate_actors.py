"""Restate: one-way calls of virtual objects, through its ingress. See `bench.actors`.

The server is Restate's own binary, from npm, with its store in a folder. The objects are served by
one process of its SDK. A call of an object waits for all before it: the last one to each object
says that all is done.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import restate

DATA = "x" * 100
AT_ONCE = 50
READY_S = 40
SERVER = "npm/node_modules/@restatedev/restate-server-linux-x64/bin/restate-server"

counter = restate.VirtualObject("Counter")


@counter.handler()
async def add(ctx: restate.ObjectContext, data: str) -> int:
    """One more."""
    count = (await ctx.get("count", type_hint=int) or 0) + 1
    ctx.set("count", count)
    return count


@counter.handler()
async def counted(ctx: restate.ObjectContext) -> int:
    """How many came before this."""
    return await ctx.get("count", type_hint=int) or 0


app = restate.app([counter])


class Ingress:
    """One connection that is kept open, by plain HTTP."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: Any = None

    async def call(self, path: str, body: object) -> Any:
        """What the server answers."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        data = b"" if body is None else json.dumps(body).encode()
        kind = "" if body is None else "content-type: application/json\r\n"
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\n{kind}content-length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        raw = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(raw.split("content-length:")[1].split("\r\n")[0])
        answer = await reader.readexactly(size)
        if raw.split()[1] not in ("200", "202"):
            raise RuntimeError(f"{path}: {raw.splitlines()[0]} {answer!r}")
        return json.loads(answer)


async def run(port: int, messages: int, actors: int, before: int = 0) -> float:
    """Seconds until all messages are counted; so many were counted before."""
    began = time.monotonic()
    places = iter(range(messages))
    lines = [Ingress(port) for _ in range(AT_ONCE)]

    async def send(line: Ingress) -> None:
        for place in places:
            await line.call(f"/Counter/actor-{place % actors}/add/send", DATA)

    async def ask(line: Ingress, numbers: Any) -> int:
        found = 0
        for number in numbers:
            found += await line.call(f"/Counter/actor-{number}/counted", None)
        return found

    await asyncio.gather(*map(send, lines))
    numbers = iter(range(actors))
    counts = await asyncio.gather(*(ask(line, numbers) for line in lines))
    assert sum(counts) == messages + before, counts
    return time.monotonic() - began


def free_port() -> int:
    """A port that nobody listens to."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def register(admin: int, service: int) -> None:
    """The server knows where the objects are, once both are up."""
    body = json.dumps({"uri": f"http://127.0.0.1:{service}", "force": True}).encode()
    url, kind = f"http://127.0.0.1:{admin}/deployments", {"content-type": "application/json"}
    until = time.monotonic() + READY_S
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(url, body, kind), timeout=5).read()
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            if time.monotonic() > until:
                raise
            time.sleep(0.3)


def main() -> None:
    """Starts a server and the objects, measures, and ends them."""
    messages, actors = int(sys.argv[2]), int(sys.argv[3])
    ingress, admin, node, service = (free_port() for _ in range(4))
    here = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as folder:
        env = {
            **os.environ,
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
            "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
            "RESTATE_BASE_DIR": folder,
            "RESTATE_LOG_FILTER": "error",
            "DO_NOT_TRACK": "1",
        }
        serve: list[str | Path] = [
            here / "hypercorn",
            "--bind",
            f"127.0.0.1:{service}",
            "restate_actors:app",
        ]
        children = [
            subprocess.Popen([str(here.parent / SERVER)], env=env, stdout=sys.stderr),
            subprocess.Popen(serve, cwd=Path(__file__).parent, stdout=sys.stderr),
        ]
        try:
            register(admin, service)
            asyncio.run(run(ingress, actors, actors))
            print(asyncio.run(run(ingress, messages, actors, actors)), flush=True)
        finally:
            for child in children:
                child.terminate()
            for child in children:
                child.wait()


if __name__ == "__main__":
    main()

"""What 200 web workers, each asked for its health every second, cost a gateway.

    $ python -m bench.web_workers [SERVICES] [SECONDS]

One process listens at as many ports as there are services. The figures are of the gateway's and of
the dispatcher's process, as the system counts their CPU time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import psutil

from longshore.testing.processes import Process, settings

ANSWER = b'{"jobs":[]}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
    ANSWER
)
ANY = "127.0.0.1:0"


class Services:
    """Services that answer health checks, on a thread of their own."""

    def __init__(self, count: int) -> None:
        self.answered = 0
        self.ports: list[int] = []
        self._count = count
        self._listening = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._listening.wait()

    async def _serve(self) -> None:
        servers = [
            await asyncio.start_server(self._talk, "127.0.0.1", 0) for _ in range(self._count)
        ]
        self.ports = [server.sockets[0].getsockname()[1] for server in servers]
        self._listening.set()
        await asyncio.Event().wait()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.answered += 1
                writer.write(HEAD + ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def register(url: str, port: int) -> None:
    me = {"hostname": "127.0.0.1", "port": port, "handlers": [f"kind-{port}"]}
    told = {"Content-Type": "application/json"}
    body = json.dumps(me).encode()
    request = urllib.request.Request(f"{url}/dispatcher/workers/", body, told, method="PUT")
    urllib.request.urlopen(request, timeout=30).close()


def cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    services = Services(count)
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/store.db"
        words = ["--store", store, "--backend", ANY, "--frontend", ANY]
        with Process("dispatcher", *words, cwd=Path(folder), log=Path(folder) / "d") as dispatcher:
            facts = dispatcher.ready().facts
            asked = ["--connect", facts["frontend"], "--backend", facts["backend"], "--http", ANY]
            quick = settings(web_ping_interval_s=1)
            with Process("gateway", *asked, *quick, log=Path(folder) / "g") as gateway:
                url = gateway.ready().facts["http"]
                for port in services.ports:
                    register(url, port)
                time.sleep(5)
                measure(services, {"gateway": gateway.pid, "dispatcher": dispatcher.pid}, seconds)


def measure(services: Services, pids: dict[str, int], seconds: float) -> None:
    before, answered = {name: cpu_s(pid) for name, pid in pids.items()}, services.answered
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    print(f"{(services.answered - answered) / took:.0f} health checks a second")
    for name, pid in pids.items():
        print(f"{name}: {(cpu_s(pid) - before[name]) / took:.1%} of a core")


if __name__ == "__main__":
    main()

"""A ZeroMQ peer that sends everything back; says its address, and ends when nobody asks."""

from __future__ import annotations

import asyncio

import uvloop
import zmq

from bench.helper import questions, reply
from longshore.links.zeromq import Router


async def main() -> None:
    """Echoes until standard input ends."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    def heard(messages: list[tuple[bytes, list[bytes]]]) -> None:
        for peer, frames in messages:
            router.send(peer, frames)

    router = Router(context, "tcp://127.0.0.1:*", heard)
    reply(router.address)
    await asyncio.to_thread(lambda: list(questions()))
    router.close()


if __name__ == "__main__":
    uvloop.run(main())

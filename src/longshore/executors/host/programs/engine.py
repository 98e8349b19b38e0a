"""A connection to a container engine, and what its errors become."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import aiodocker
import aiohttp
from aiodocker.exceptions import DockerError
from msgspec import Struct

from longshore.errors import ConfigError
from longshore.executors.host.programs import engine_errors
from longshore.executors.host.programs.runner import CannotBegin

T = TypeVar("T")

CONNECTION_LOST: Final = (aiohttp.ClientError, ConnectionError, EOFError, asyncio.TimeoutError)
"""What is raised when an engine goes away in the middle of an answer."""

_NO_CONNECTION = 900  # the status that aiodocker makes up


class EngineTerms(Struct, frozen=True, kw_only=True):
    """Which engine runs containers, and how."""

    url: str
    """unix:///path or tcp://host:port"""
    registries: str = ""
    """A file with credentials for registries, in the format of Docker's config.json."""
    grace_s: float = 3.0
    """How long a container that is told to end may take, before it is killed."""
    answer_s: float = 20.0
    """How long an engine may take to kill or to remove a container; a sweep does it then."""
    sweep_s: float = 60.0
    """How often containers that nobody attends are looked for."""
    worker: str = ""
    fleet: str = ""
    """Both are for people: containers carry them as labels."""
    gpus: bool = False
    """Whether it gives containers their GPUs."""


def connect(url: str) -> aiodocker.Docker:
    """A client of an engine. Each container takes two connections: their number is not bounded."""
    address = urlsplit(url)
    if address.scheme == "unix" and address.path:
        return aiodocker.Docker(
            "unix://localhost", connector=aiohttp.UnixConnector(address.path, limit=0)
        )
    if address.scheme in ("tcp", "http") and address.hostname:
        return aiodocker.Docker(f"http://{address.netloc}", connector=aiohttp.TCPConnector(limit=0))
    raise ConfigError(f"engine: '{url}' is none; it is unix:///path/docker.sock or tcp://host:port")


async def check_answers(url: str) -> None:
    """Raises if an engine takes no new connection, as one that is about to stop does not."""
    docker = connect(url)
    try:
        await docker.version()
    finally:
        await disconnect(docker)


async def disconnect(docker: aiodocker.Docker) -> None:
    """Closes a client and its connections."""
    await docker.close()
    await docker.connector.close()


@contextlib.contextmanager
def losses() -> Iterator[None]:
    """Raises `CannotBegin` for an engine that is gone; its refusals go through as `DockerError`."""
    try:
        yield
    except CONNECTION_LOST as error:
        raise CannotBegin(engine_errors.gone(error)) from error
    except DockerError as error:
        if error.status == _NO_CONNECTION:
            raise CannotBegin(engine_errors.gone(error.message)) from error
        raise


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Does work to its end though the task is cancelled; lets the cancellation through then."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        with contextlib.suppress(BaseException):
            task.result()
        raise asyncio.CancelledError
    return task.result()

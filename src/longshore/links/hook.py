"""Tells the user's own systems of a lost worker: by a command, or by a signed post to a URL.

The hook never holds up a dispatcher: each run has a time limit, and only a few run at once. If too
many wait, the hook drops the next one and logs it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec

from longshore.core.addresses import Allowed, checked_url, shown_url
from longshore.core.webhooks import key_of_text, signed_headers
from longshore.errors import ConfigError, InvalidInput
from longshore.model.worker import LostWorker

log = logging.getLogger("longshore.hook")

MOST_AT_ONCE: Final = 8
MOST_WAITING: Final = 1_000
LEAVE_S: Final = 1.0
_STDERR: Final = 2
NOTHING_MORE: Final = Allowed()


class LostHook:
    """Runs once for each lost worker that it is told of, within `within_s` each.

    `variables` name what a command is told of the worker: its id, name, host, reason of loss and
    session, and the id, the private and the public address of its machine. A URL is posted to as
    Standard Webhooks 1.0 says, if its address is `allowed`.
    """

    def __init__(
        self,
        what: str,
        secret: str,
        utc: Callable[[], datetime],
        *,
        variables: Sequence[str],
        allowed: Allowed = NOTHING_MORE,
        within_s: float = 10.0,
    ) -> None:
        self._url = what if what.startswith(("http://", "https://")) else None
        self._command = [] if self._url else _words(what)
        self._key = key_of_text(secret)
        self._allowed = allowed
        self._utc = utc
        self._variables = variables
        self._within_s = within_s
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        if self._url and not secret:
            raise ConfigError(
                "on_worker_lost is a URL, and what is posted there is signed: set "
                "on_worker_lost_secret to a text that only its receiver knows"
            )
        if self._url:
            _check(self._url)

    def __call__(self, lost: LostWorker) -> None:
        """Begins to tell of a lost worker."""
        if len(self._tasks) >= MOST_WAITING:
            log.error("on_worker_lost was not run for %s: too many wait", lost.info.id)
            return
        task = asyncio.create_task(self._tell(lost))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Waits for the runs that are under way, as long as one may take; drops the rest."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._within_s + LEAVE_S)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _tell(self, lost: LostWorker) -> None:
        async with self._room:
            why = await self._failure(lost)
        if why is None:
            log.info("on_worker_lost was run for worker %s", lost.info.id)
        else:
            log.error("on_worker_lost failed for worker %s: %s", lost.info.id, why)

    async def _failure(self, lost: LostWorker) -> str | None:
        """What went wrong, if anything did."""
        try:
            async with asyncio.timeout(self._within_s):
                await (self._post(lost) if self._url else self._run(lost))
        except TimeoutError:
            return f"it took longer than {self._within_s:g} s and was given up"
        except (OSError, ValueError, _Refused) as error:
            return str(error)
        return None

    # a command

    async def _run(self, lost: LostWorker) -> None:
        # It writes to the dispatcher's own stderr, so that nothing must be kept.
        process = await asyncio.create_subprocess_exec(
            *self._command,
            env={**os.environ, **self._environment(lost)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=_STDERR,
            stderr=_STDERR,
            start_new_session=True,
        )
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise
        if code != 0:
            raise _Refused(f"{self._command[0]} ended with code {code}")

    def _environment(self, lost: LostWorker) -> dict[str, str]:
        info = lost.info
        own = (str(info.id), info.name, info.host, lost.reason, str(lost.session))
        values = (*own, *_machine(lost).values())
        texts = [value.replace("\0", "") for value in values]
        return dict(zip(self._variables, texts, strict=True))

    # a URL

    async def _post(self, lost: LostWorker) -> None:
        # Few dispatchers have a URL to post to, and the import takes a while.
        from longshore.links.outbound import NotAllowed, Outbound, Request, Unanswered

        url, body, now = self._url or "", self._body(lost), int(self._utc().timestamp())
        headers = signed_headers(self._key, f"{lost.info.id}-{lost.session}", now, body)
        headers["Content-Type"] = "application/json"
        request = Request(url=url, headers=headers, body=body)
        try:
            async with Outbound(self._allowed) as outbound:
                answer = await outbound.send(request, within_s=self._within_s)
        except (NotAllowed, Unanswered) as error:
            raise _Refused(f"{shown_url(url)}: {error}") from None
        if not answer.is_success:
            raise _Refused(f"{shown_url(url)} answered {answer.status}")

    def _body(self, lost: LostWorker) -> bytes:
        info = lost.info
        return msgspec.json.encode(
            {
                "type": "worker.lost",
                "timestamp": self._utc().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                "data": {
                    "worker": info.id,
                    "name": info.name,
                    "host": info.host,
                    "session": lost.session,
                    "reason": lost.reason,
                    **_machine(lost),
                },
            }
        )


def _machine(lost: LostWorker) -> dict[str, str]:
    """What whoever looks after machines needs to find the worker's; texts may be empty."""
    machine = lost.info.machine
    return {
        "instance_id": machine.instance or lost.info.host,
        "private_ip": machine.private_ip,
        "public_ip": machine.public_ip,
    }


class _Refused(Exception):
    """The other side did not do what it was asked, or may not be asked."""


def _check(url: str) -> None:
    try:
        checked_url("on_worker_lost", url)
    except InvalidInput as error:
        raise ConfigError(str(error)) from None


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"on_worker_lost is no command line: {error}") from None
    if not words:
        raise ConfigError("on_worker_lost names no command; give a command line or a URL")
    return words

"""Tells the user's own systems of a lost worker: by a command, or by a signed post to a URL.

The hook never holds up a dispatcher: each run has a time limit, and only a few run at once. If too
many wait, the hook drops the next one and logs it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import shlex
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from typing import Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from longshore.errors import ConfigError
from longshore.model.worker import LostWorker

log = logging.getLogger("longshore.hook")

SIGNATURE: Final = "Longshore-Signature"
MOST_AT_ONCE: Final = 8
MOST_WAITING: Final = 1_000
LEAVE_S: Final = 1.0
_STDERR: Final = 2


class LostHook:
    """Runs once for each lost worker that it is told of, within `within_s` each.

    `variables` name the worker's id, name, host, reason of loss and session for a command.
    """

    def __init__(
        self,
        what: str,
        secret: str,
        utc: Callable[[], datetime],
        *,
        variables: Sequence[str],
        within_s: float = 10.0,
    ) -> None:
        self._url = what if what.startswith(("http://", "https://")) else None
        self._command = [] if self._url else _words(what)
        self._secret = secret.encode()
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
        values = (str(info.id), info.name, info.host, lost.reason, str(lost.session))
        texts = [value.replace("\0", "") for value in values]
        return dict(zip(self._variables, texts, strict=True))

    # a URL

    async def _post(self, lost: LostWorker) -> None:
        request = self._request(lost)
        posted: Future[None] = Future()
        posted.set_running_or_notify_cancel()

        def work() -> None:
            try:
                _send(request, self._within_s)
            except Exception as error:
                posted.set_exception(error)
            else:
                posted.set_result(None)

        # A daemon: a post that hangs must not keep the process from ending.
        threading.Thread(target=work, name="longshore-hook", daemon=True).start()
        await asyncio.wrap_future(posted)

    def _request(self, lost: LostWorker) -> Request:
        info = lost.info
        body = msgspec.json.encode(
            {
                "event": "worker_lost",
                "worker": info.id,
                "name": info.name,
                "host": info.host,
                "session": lost.session,
                "reason": lost.reason,
                "at": self._utc().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            }
        )
        signed = hmac.new(self._secret, body, hashlib.sha256).hexdigest()
        headers = {"Content-Type": "application/json", SIGNATURE: f"sha256={signed}"}
        return Request(self._url or "", body, headers, method="POST")


class _Refused(Exception):
    """The other side was reached and did not do what it was asked."""


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: the signature is for the receiver that the user named."""

    def redirect_request(self, *_: object) -> None:
        """Follows none."""


def _send(request: Request, within_s: float) -> None:
    try:
        build_opener(_NoRedirects).open(request, timeout=within_s).close()
    except HTTPError as error:
        error.close()
        raise _Refused(f"{request.full_url} answered {error.code}") from None
    except (OSError, ValueError):
        raise
    except Exception as error:
        raise _Refused(f"{request.full_url} did not speak HTTP: {error!r}") from None


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"on_worker_lost is no command line: {error}") from None
    if not words:
        raise ConfigError("on_worker_lost names no command; give a command line or a URL")
    return words

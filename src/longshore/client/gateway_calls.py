"""What a web worker asks of gateways: it registers, reports ends, resigns."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener
from uuid import UUID

from longshore.core.signatures import FROM_SERVICE, signature

log = logging.getLogger("longshore.web_worker")

ANSWER_S: Final = 15.0
PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 10.0
MOST_TOLD_PAUSE_S: Final = 60.0
"""A gateway that asks for a longer pause (`Retry-After`) is asked again after this one."""
_REFUSED: Final = frozenset({400, 404, 409, 413, 422})
"""What is sent again gets these again. After the others an end may still be recorded."""
_RETRY_AFTER: Final = "retry-after"


class GatewayCalls:
    """Calls a gateway in threads. `secret` is known once it is registered."""

    def __init__(self, gateway: str, token: str = "") -> None:
        self._gateway = gateway
        self._token = token
        self._opener = build_opener(ProxyHandler({}))
        self.id = ""
        self.secret = ""

    async def register(self, me: dict[str, Any]) -> None:
        """Registers; asks again until a gateway takes it."""
        pause_s = PAUSE_S
        while True:
            status, answer = await self._ask("PUT", "/dispatcher/workers/", me)
            if status in (200, 201):
                self.id, self.secret = answer["id"], answer["secret"]
                log.info("registered as web worker %s", self.id)
                return
            if status:
                log.warning("the gateway refused the registration: %s", answer)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def report(self, job: UUID, body: dict[str, Any]) -> None:
        """Reports an end until a gateway has taken or refused it."""
        pause_s = PAUSE_S
        while True:
            path = f"/dispatcher/jobs/{job}/result"
            status, answer = await self._ask("PUT", path, body)
            if 200 <= status < 300:
                return
            if status in _REFUSED:
                log.warning("the end of job %s was refused: %s", job, answer)
                return
            await asyncio.sleep(max(pause_s, answer.get(_RETRY_AFTER, 0.0)))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def resign(self) -> None:
        """Resigns, if it is registered."""
        if self.id:
            await self._ask("DELETE", f"/dispatcher/workers/{self.id}")

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """The status and the document of an answer; status 0 if there is none."""
        return await asyncio.to_thread(self._ask_now, method, path, body)

    def _ask_now(
        self, method: str, path: str, body: dict[str, Any] | None
    ) -> tuple[int, dict[str, Any]]:
        data = b"" if body is None else json.dumps(body).encode()
        told = {"Content-Type": "application/json"} if data else {}
        if self._token:
            told["Authorization"] = f"Bearer {self._token}"
        if self.secret:
            now = int(time.time())
            made = signature(self.secret, FROM_SERVICE, method, path, now, data)
            told |= {"Longshore-Worker": self.id, "Longshore-Time": str(now)}
            told["Longshore-Signature"] = made
        request = Request(self._gateway + path, data or None, told, method=method)
        try:
            with self._opener.open(request, timeout=ANSWER_S) as answer:
                return answer.status, json.loads(answer.read())
        except HTTPError as error:
            said = error.read()[:1000].decode(errors="replace")
            pause_s = _pause_s(error.headers.get(_RETRY_AFTER, ""))
            return error.code, {"detail": said, _RETRY_AFTER: pause_s}
        except (OSError, ValueError, HTTPException):
            return 0, {}


def _pause_s(told: str) -> float:
    """The pause that `Retry-After` asks for in seconds; a date counts as none."""
    if not (told.isascii() and told.isdigit()):
        return 0.0
    return min(float(told[:9]), MOST_TOLD_PAUSE_S)

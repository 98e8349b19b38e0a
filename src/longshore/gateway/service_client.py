"""The four routes of a web service, as its gateway calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from longshore.client.jsonable import payload
from longshore.core.signatures import FROM_SERVICE, TO_SERVICE, is_signed, signature
from longshore.core.worker_limits import MAX_HELD
from longshore.links.outbound import Answer, Caller, NotAllowed, Request, Unanswered, Unreached
from longshore.model.attempt import Assignment, AttemptKey
from longshore.model.web_worker import WebRegistration

LEASE: Final = "Longshore-Lease-S"
ADOPTION: Final = "Longshore-Adoption"
CHECK: Final = "Longshore-Check"
COUNTED: Final = "Longshore-Counted"
SIGNATURE: Final = "Longshore-Signature"
TIME: Final = "Longshore-Time"
MAX_WORDS: Final = 500

_encoder: Final = msgspec.json.Encoder(uuid_format="canonical")


class Held(Struct, frozen=True):
    """One job in a health answer."""

    id: UUID
    token: int


class Health(Struct, frozen=True):
    """What a service answers to a health check. Without `jobs` it does not say what it runs."""

    jobs: tuple[Held, ...] | None = None

    @property
    def held(self) -> tuple[AttemptKey, ...] | None:
        """The attempts that it runs."""
        if self.jobs is None:
            return None
        return tuple((job.id, job.token) for job in self.jobs)


class Failing(Struct, frozen=True):
    """The service gave no good answer; `reached` if it may have got the request."""

    why: str
    reached: bool = True


_health: Final = msgspec.json.Decoder(Health)
_any: Final = msgspec.json.Decoder(dict[str, Any])
_held: Final = msgspec.json.Decoder(Held)


class Signing(Struct, frozen=True):
    """How messages with one service are signed. If `required`, it must sign its answers."""

    secret: str
    required: bool
    now: Callable[[], float]


class ServiceClient:
    """Calls one service. It says which adoption of the service its gateway's is.

    So the service can tell what a gateway says late, which was frozen while another adopted it.
    """

    def __init__(
        self,
        said: WebRegistration,
        outbound: Caller,
        signing: Signing,
        adoption: int,
        *,
        within_s: float,
        most: int,
    ) -> None:
        host = f"[{said.host}]" if ":" in said.host else said.host
        self._url = f"http://{host}:{said.port}"
        self._outbound = outbound
        self._signing = signing
        self._adoption = {ADOPTION: str(adoption)}
        self._within_s = within_s
        self._most = most

    async def health(self, check: int, counted: int, lease_s: float) -> Health | Failing:
        """Asks how it is. Tells it which of its answers counted, and for how long that lasts."""
        told = {CHECK: str(check), **_lease(counted, lease_s)}
        answer = await self._call("GET", "/health_check/", headers=told)
        if isinstance(answer, Failing):
            return answer
        if answer.status != 200:
            return Failing(f"/health_check/ answered {_told(answer)}")
        return _read_health(answer.body)

    async def give(self, one: Assignment, counted: int, lease_s: float) -> Answer | Failing:
        """Asks it to run an attempt, and tells it the lease that it has so far."""
        job = {
            "id": one.job,
            "token": one.token,
            "kind": one.kind,
            "args": payload(one.args, raw=one.raw),
            "timeout_s": one.timeout_s,
            "attempt": one.attempt,
            "raw": one.raw,
        }
        told = _lease(counted, lease_s)
        return await self._call("POST", "/jobs/", _encoder.encode(job), told)

    async def has(self, job: UUID, token: int) -> bool | Failing:
        """Whether it runs an attempt."""
        answer = await self._call("GET", f"/jobs/{job}")
        if isinstance(answer, Failing):
            return answer
        if answer.status == 404:
            return False
        if answer.status != 200:
            return Failing(f"/jobs/{job} answered {_told(answer)}")
        try:
            found = _held.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return Failing(f"/jobs/{job} answered without the id and the token of a job")
        return (found.id, found.token) == (job, token)

    async def stop(self, job: UUID, token: int) -> Answer | Failing:
        """Asks it to stop an attempt."""
        return await self._call("DELETE", f"/jobs/{job}?token={token}")

    async def _call(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer | Failing:
        told = {**self._adoption, **(headers or {}), **self._signed(method, path, body)}
        if body:
            told["Content-Type"] = "application/json"
        request = Request(url=self._url + path, method=method, headers=told, body=body)
        try:
            answer = await self._outbound.send(
                request, within_s=self._within_s, most=self._most + 1
            )
        except (Unreached, NotAllowed) as error:
            return Failing(str(error)[:MAX_WORDS], reached=False)
        except Unanswered as error:
            return Failing(str(error)[:MAX_WORDS])
        return self._checked(method, path, answer)

    def _signed(self, method: str, path: str, body: bytes) -> dict[str, str]:
        time = int(self._signing.now())
        made = signature(self._signing.secret, TO_SERVICE, method, path, time, body)
        return {TIME: str(time), SIGNATURE: made}

    def _checked(self, method: str, path: str, answer: Answer) -> Answer | Failing:
        """The answer, if it is not too large and its signature is right."""
        if len(answer.body) > self._most:
            return Failing(f"{path} answered more than web_answer_bytes ({self._most:,})")
        if 300 <= answer.status < 400:
            return Failing(f"{path} answered {answer.status}: redirects are not followed")
        given = answer.headers.get(SIGNATURE.lower(), "")
        if not given and not self._signing.required:
            return answer
        time = answer.headers.get(TIME.lower(), "")
        if time.isascii() and time.isdigit() and len(time) < 15:
            what = (FROM_SERVICE, method, path, int(time), answer.body, self._signing.now())
            if is_signed(self._signing.secret, given, *what):
                return answer
        return Failing(f"{path} answered without a good signature ({SIGNATURE})")


def _lease(counted: int, lease_s: float) -> dict[str, str]:
    return {COUNTED: str(counted), LEASE: f"{lease_s:g}"} if counted else {}


def _read_health(body: bytes) -> Health | Failing:
    try:
        health = _health.decode(body) if body.strip().startswith(b"{") else Health()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Failing(f"/health_check/ answered garbage: {error}"[:MAX_WORDS])
    if health.jobs is not None and len(health.jobs) > MAX_HELD:
        return Failing(f"/health_check/ names {len(health.jobs):,} jobs; {MAX_HELD:,} are allowed")
    if any(not 0 <= job.token < 2**63 for job in health.jobs or ()):
        return Failing("/health_check/ names a token that no job has")
    return health


def _told(answer: Answer) -> str:
    text = answer.body[:200].decode(errors="replace").strip()
    return f"{answer.status} {text}".strip()


def refusal(answer: Answer) -> str:
    """What a service said when it refused an attempt."""
    try:
        said = _any.decode(answer.body)
        for name in ("detail", "error", "message"):
            if isinstance(said.get(name), str):
                return f"{answer.status}: {said[name]}"[:MAX_WORDS]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    return _told(answer)[:MAX_WORDS]

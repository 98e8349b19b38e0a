"""Every write over HTTP is sent again and again, in random order, and counts once.

So a client that got no answer sends again what it sent. Each write is repeated at once. All of them
are repeated once more in the end, in random order, except those that say how something is to be
from now on (a pause, a cancel, a rule, a schedule): of these the last one counts, whoever sends it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import pytest

from longshore.gateway.routes import OPERATIONS
from longshore.testing.processes import Process, await_true, run, settings
from tests.interop.services import Service
from tests.system.conftest import ANY, QUICK, QUICK_WORKER, Fleet

JOBS, GROUPS, ACTORS = "/dispatcher/jobs/", "/dispatcher/groups/", "/dispatcher/actors/"
WORKERS, QUEUES, TOKENS = "/dispatcher/workers/", "/dispatcher/queues/", "/dispatcher/tokens/"
SCHEDULES, LIMITS = "/dispatcher/schedules/", "/dispatcher/limits/"
BULKS = "/dispatcher/bulk/"
ANN = f"{ACTORS}Counter/ann"
RELAYED = "relay_request"
"""Passes on a message of the SDK, which has ids of its own: no key is for it."""
LASTING = ("pause", "resume", "cancel", "drain", "put", "set", "remove")
REFUSED = {
    "create_token": 409,
    "edit_actor": 412,
    "sort_mail": 409,
    "cancel_group": 409,
    "drain_worker": 409,
    "stop_actor": 404,
    "put_schedule": 409,
    "remove_schedule": 404,
    "remove_limit": 404,
}
"""Who repeats these may hear that it has been done. A token's secret is shown only once."""
_OF_FILES = tuple(f"/dispatcher/{one}/" for one in ("filesets", "blobs", "inputs", "checkpoints"))
FILES = {one.id for one in OPERATIONS if one.path.startswith(_OF_FILES)}
"""Files are named by what is in them, and need a store of files."""
IN_A_MOMENT = {"lastPinged", "failedPingCount", "lastError", "seen_at", "last_used_at"}


class Write(NamedTuple):
    """A request that changes something, and the key by which it is known."""

    operation: str
    path: str
    body: object = None
    headers: dict[str, str] | None = None
    says: str = ""
    """Which of several requests of one operation it is."""


class Api:
    """A gateway."""

    def __init__(self, url: str, admin: str) -> None:
        self._url = url
        self.admin = {"Authorization": f"Bearer {admin}"}
        """The header that tokens are made and revoked with."""
        self.sent: list[tuple[Write, Any]] = []
        """What was sent first, and what it was answered."""

    def write(self, write: Write) -> Any:
        """Sends a request for the first time; answers the document."""
        status, answer, _ = self._send(write)
        assert status < 300, (write, answer)
        self.sent.append((write, answer))
        before = settled(self)
        self.repeat(write, answer)
        assert settled(self) == before, write
        return answer

    def repeat(self, write: Write, first: Any) -> None:
        """Sends a request once more, which is answered as the first one was."""
        status, answer, _ = self._send(write)
        assert status < 300 or status == REFUSED.get(write.operation), (write, status, answer)
        for name in ("id", "result"):
            if status < 300 and name in first:
                assert answer[name] == first[name], write

    def _send(self, write: Write) -> tuple[int, Any, Any]:
        key = f"{write.operation}/{write.says}"
        headers = {"Idempotency-Key": key, **(write.headers or {})}
        return self.call(METHODS[write.operation], write.path, write.body, headers)

    def call(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, Any]:
        """The status, the document and the headers of an answer."""
        data = None if body is None else json.dumps(body).encode()
        told = {"Content-Type": "application/json"} if data else {}
        request = Request(self._url + path, data, {**told, **(headers or {})}, method=method)
        try:
            with urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer), answer.headers
        except OSError as error:
            if not hasattr(error, "code"):
                raise
            return error.code, json.loads(error.read()), {}  # type: ignore[attr-defined]

    def get(self, path: str) -> Any:
        """What is at an address."""
        status, answer, _ = self.call("GET", path)
        assert status == 200, answer
        return answer


METHODS = {one.id: one.method for one in OPERATIONS if one.method != "GET"}


@pytest.fixture
def api(fleet: Fleet) -> Api:
    """A gateway on each store, a worker with actors, and one that will be drained."""
    words = ["--store", fleet.store, "--backend", ANY, "--frontend", ANY, "--http", ANY]
    quick = {"web_ping_interval_s": 0.2, "web_attend_s": 0.1, "max_long_poll_s": 20}
    dispatcher = fleet.start("dispatcher", *words, *settings(**QUICK, **quick))
    _work(fleet, dispatcher)
    fleet.worker(dispatcher)
    made = run("token", "create", "--role", "admin", "--connect", dispatcher.facts["frontend"])
    return Api(dispatcher.facts["http"], made.stdout.strip())


def _work(fleet: Fleet, dispatcher: Process) -> None:
    words = ["--app", "counters:app", "--connect", dispatcher.facts["backend"]]
    fleet.start("worker", *words, *settings(**QUICK_WORKER))


@pytest.fixture
def service() -> Iterator[Service]:
    """A web worker."""
    service = Service("fetch")
    yield service
    service.close()


def write_jobs(api: Api) -> None:
    """A job is submitted, cancelled and retried; another one waits."""
    body = {"kind": "stone", "args": {}, "delay_s": 3600}
    job = api.write(Write("submit_jobs", JOBS, body))["id"]
    api.write(Write("cancel_job", f"{JOBS}{job}"))
    api.write(Write("retry_job", f"{JOBS}{job}/retry"))


def write_bulks(api: Api) -> None:
    """All jobs of a kind get a priority; a bulk is cancelled."""
    body = {"kind": "heap", "args": {}, "delay_s": 3600}
    api.write(Write("submit_jobs", JOBS, body, says="heap"))
    first = {"query": "kind:heap", "action": "priority", "priority": 3}
    bulk = api.write(Write("start_bulk", BULKS, first))["id"]
    api.write(Write("stop_bulk", f"{BULKS}{bulk}"))


def write_groups(api: Api) -> None:
    """Groups are paused, resumed, cancelled, retried and run anew; a gate is opened."""
    flow = {"name": "held", "jobs": [{"key": "go", "gate": True}, {"key": "a", "kind": "stone"}]}
    held = GROUPS + api.write(Write("submit_group", GROUPS, flow, says="held"))["id"]
    api.write(Write("pause_group", f"{held}/pause"))
    api.write(Write("resume_group", f"{held}/resume"))
    api.write(Write("open_gate", f"{held}/gates/go", {"value": 1}))
    flow = {"name": "ended", "jobs": [{"key": "a", "kind": "stone", "args": {}}]}
    for says in ("retried", "run anew"):
        ended = GROUPS + api.write(Write("submit_group", GROUPS, flow, says=says))["id"]
        api.write(Write("cancel_group", ended, says=says))
        _await_state(api, ended, "cancelled")
        if says == "retried":
            api.write(Write("retry_group", f"{ended}/retry", {}))
        else:
            api.write(Write("rerun_group", f"{ended}/rerun", {}))


def _await_state(api: Api, path: str, state: str) -> None:
    await_true(lambda: api.get(path)["state"] == state, f"{path} is {state}")


def write_actors(api: Api) -> None:
    """An actor is told, asked, paused, resumed and edited; another one is stopped."""
    api.write(Write("start_actor", ACTORS, {"type": "Counter", "key": "ann"}, says="ann"))
    api.write(Write("start_actor", ACTORS, {"type": "Counter", "key": "bob"}, says="bob"))
    api.write(Write("send_message", f"{ANN}/messages", {"name": "add", "args": {"amount": 5}}))
    api.write(Write("ask_actor", f"{ANN}/ask", {"name": "add", "args": {"amount": 2}}))
    api.write(Write("pause_actor", f"{ANN}/pause"))
    state, (_, _, headers) = {"count": 100}, api.call("GET", ANN)
    edit = {"state": {**api.get(ANN)["state"], **state}}
    api.write(Write("edit_actor", f"{ANN}/state", edit, {"If-Match": headers["ETag"]}))
    later = {"name": "add", "args": {"amount": 9}}
    api.write(Write("send_message", f"{ANN}/messages", later, says="later"))
    (mail,) = api.get(f"{ANN}/mail")["mail"]
    api.write(Write("sort_mail", f"{ANN}/mail/{mail['number']}", {"action": "park"}))
    api.write(Write("resume_actor", f"{ANN}/resume"))
    api.write(Write("stop_actor", f"{ACTORS}Counter/bob"))


def write_fleet(api: Api, service: Service) -> None:
    """Queues and tokens come and go; a web worker runs a job, another one resigns."""
    api.write(Write("pause_queue", f"{QUEUES}mail/pause"))
    api.write(Write("resume_queue", f"{QUEUES}mail/resume"))
    api.write(Write("pause_queue", f"{QUEUES}post/pause", says="post"))
    api.write(Write("create_token", TOKENS, {"name": "mine", "role": "read"}, api.admin))
    api.write(Write("revoke_token", f"{TOKENS}mine", None, api.admin))
    me = {"hostname": "127.0.0.1", "port": service.port, "handlers": ["fetch"], "instance": "one"}
    api.write(Write("register_web_worker", WORKERS, me))
    job = api.write(Write("submit_jobs", JOBS, {"kind": "fetch", "args": {}}, says="fetch"))["id"]
    await_true(lambda: bool(service.posted), "the web worker gets the job")
    result = {"token": service.posted[0]["token"], "status": "succeeded", "result": 7}
    api.write(Write("report_job_result", f"{JOBS}{job}/result", result))
    service.jobs.clear()
    gone = {**me, "port": 1, "instance": "two"}
    other = api.write(Write("register_web_worker", WORKERS, gone, says="gone"))["id"]
    api.write(Write("resign_web_worker", f"{WORKERS}{other}"))
    (worker,) = drained(api)
    api.write(Write("drain_worker", f"{WORKERS}{worker['id']}/drain"))


def write_schedules(api: Api) -> None:
    """A schedule is paused, resumed, triggered and backfilled; another one, and a rule, go."""
    nightly = {"name": "nightly", "cron": "0 2 * * *", "job": {"kind": "stone", "args": {}}}
    api.write(Write("put_schedule", SCHEDULES, nightly))
    api.write(Write("pause_schedule", f"{SCHEDULES}nightly/pause", {"note": "for now"}))
    api.write(Write("resume_schedule", f"{SCHEDULES}nightly/resume"))
    api.write(Write("trigger_schedule", f"{SCHEDULES}nightly/trigger"))
    span = {"first": "2026-01-01T00:00:00Z", "last": "2026-01-02T12:00:00Z"}
    api.write(Write("backfill_schedule", f"{SCHEDULES}nightly/backfill", span))
    api.write(Write("put_schedule", SCHEDULES, {**nightly, "name": "gone"}, says="gone"))
    api.write(Write("remove_schedule", f"{SCHEDULES}gone"))
    api.write(Write("set_limit", f"{LIMITS}tenant=a", {"concurrency": 2}))
    api.write(Write("set_limit", f"{LIMITS}tenant=b", {"concurrency": 2}, says="b"))
    api.write(Write("remove_limit", f"{LIMITS}tenant=b"))


def fires(api: Api) -> list[Any]:
    """What became of the times of each schedule."""
    names = [one["name"] for one in api.get(SCHEDULES)["schedules"]]
    found = [api.get(f"{SCHEDULES}{name}?limit=100")["fires"] for name in names]
    return [[name, len(some)] for name, some in zip(names, found, strict=True)]


def state_of(api: Api) -> dict[str, Any]:
    """All that writes may have changed. The turns of actors are seen in their states."""
    listed = [one for one in api.get(f"{JOBS}?limit=100")["jobs"] if "@" not in one["kind"]]
    jobs = [api.get(f"{JOBS}{one['id']}") for one in listed]
    bulks = api.get(BULKS)["bulks"]
    groups = [api.get(f"{GROUPS}{one['id']}") for one in api.get(GROUPS)["groups"]]
    # A repeat of a token's creation is noted too: it asks for another secret.
    entries = api.get("/dispatcher/audit/?limit=100")["entries"]
    found = {
        "jobs": [
            [one[name] for name in ("id", "state", "round", "attempt", "priority")] for one in jobs
        ],
        "bulks": [[one[name] for name in ("id", "state", "done")] for one in bulks],
        "histories": [len(api.get(f"{JOBS}{one['id']}/history")["history"]) for one in jobs],
        "groups": [[one[name] for name in ("id", "state", "name")] for one in groups],
        "actors": api.get(ACTORS)["actors"],
        "ann": api.call("GET", ANN)[1].get("state"),
        "mail": api.call("GET", f"{ANN}/mail")[1].get("mail"),
        "queues": [[one["name"], one["paused"]] for one in api.get(QUEUES)["queues"]],
        "tokens": api.get(TOKENS)["tokens"],
        "services": api.get(WORKERS)["web_workers"],
        "schedules": fires(api),
        "limits": [[one["pattern"], one["concurrency"]] for one in api.get(LIMITS)["limits"]],
        "audit": sorted({(one["action"], one["subject"]) for one in entries}),
    }
    return _lasting(found)  # type: ignore[no-any-return]


def _lasting(found: Any) -> Any:
    """Without what changes by itself."""
    if isinstance(found, dict):
        return {name: _lasting(one) for name, one in found.items() if name not in IN_A_MOMENT}
    return [_lasting(one) for one in found] if isinstance(found, list) else found


def test_every_write_that_is_sent_again_in_random_order_counts_once(
    api: Api, service: Service
) -> None:
    random = Random(2)
    parts: list[Callable[[Api], None]] = [
        write_jobs,
        write_bulks,
        write_groups,
        write_actors,
        write_schedules,
        partial(write_fleet, service=service),
    ]
    random.shuffle(parts)
    for part in parts:
        part(api)
    assert {write.operation for write, _ in api.sent} == {*METHODS} - {RELAYED} - FILES
    before = settled(api)
    late = [one for one in api.sent if not one[0].operation.startswith(LASTING)]
    random.shuffle(late)
    for write, first in late:
        api.repeat(write, first)
    assert settled(api) == before


def settled(api: Api) -> dict[str, Any]:
    """What there is, once nothing changes any more by itself."""
    last: list[dict[str, Any]] = [{}]

    def is_same() -> bool:
        before, last[0] = last[0], state_of(api)
        return before == last[0] and is_quiet(last[0])

    await_true(is_same, "nothing changes any more")
    return last[0]


def is_quiet(found: dict[str, Any]) -> bool:
    """Whether nothing is under way: no cancel, no turn of an actor, no first health check."""
    actors = {one["status"] for one in found["actors"]} <= {"sleeping", "paused"}
    services = all(one["state"] != "registered" for one in found["services"])
    bulks = all(state != "running" for _, state, _ in found["bulks"])
    return actors and services and bulks and '"cancelling"' not in json.dumps(found)


def drained(api: Api) -> list[Any]:
    """The worker that is to be drained, while it lives."""
    workers = api.get(WORKERS)["workers"]
    return [one for one in workers if one["alive"] and "multiply" in one["kinds"]]

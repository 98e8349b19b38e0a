"""Who may do what over HTTP: roles, scopes, tokens that end, and requests that are too many."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any, get_args

import pytest
from msgspec import structs
from tests.unit.dispatcher.stage import Stage
from tests.unit.dispatcher.test_rare_orders import pass_time
from tests.unit.dispatcher.test_stories import tell

from longshore.client.tokens import new_token
from longshore.core.access import RIGHTS, Right, hash_of
from longshore.dispatcher.access import NEEDS
from longshore.errors import NotAllowed, NotFound
from longshore.gateway.asking import asked_by
from longshore.gateway.operation import Operation
from longshore.gateway.routes import OPERATIONS
from longshore.model.access import Role, Scope
from longshore.model.actor import ActorTerms, NewActor
from longshore.model.history import HistoryJob
from longshore.model.job import JobState, Options, Verdict
from longshore.model.reports import SuccessReport
from longshore.model.watcher import ActorWatcher
from longshore.model.web_worker import WebRegistration
from longshore.model.worker import Attended, SessionKey
from longshore.payload.values import pack
from longshore.testing.builders import Scene, a_job, a_worker, new_id
from longshore.testing.faults import Fault, scripted
from longshore.wire import access_messages as t
from longshore.wire import messages as m
from longshore.wire.access_messages import on_behalf
from longshore.wire.codec import encode

from .doors import Door, bearer, story

BODIES: dict[str, Any] = {
    "submit_jobs": {"kind": "work"},
    "submit_group": {"name": "g", "jobs": [{"key": "a", "kind": "work"}]},
    "start_actor": {"type": "Counter", "key": "k"},
    "edit_actor": {"state": {}},
    "send_message": {"name": "add"},
    "ask_actor": {"name": "add"},
    "create_token": {"name": "new", "role": "read"},
}
OF_ATTEMPTS = {"find_checkpoint"}
"""Only an attempt may ask this, by its ticket."""
UNKNOWN = "ls_" + "x" * 43
JOBS = "/dispatcher/jobs/"


def path_of(operation: Operation) -> str:
    path = operation.path
    for name, value in {
        "id": "77",
        "name": "mail",
        "type": "Counter",
        "key": "k",
        "verb": "HELLO",
    }.items():
        path = path.replace(f"{{{name}}}", value)
    return path


async def status_of(door: Door, operation: Operation, headers: dict[str, Any]) -> int:
    """How a request of this operation is answered; a stream is left once it has begun."""
    more: dict[str, Any] = {"if_match": '"turn-1"'} if operation.needs_match else {}
    if operation.streams:
        async with door.stream(path_of(operation), **headers, **more) as events:
            await events.next()
            return events.status
    body = BODIES.get(operation.id)
    if operation.is_octets:
        body, more = encode(m.Hello(7))[2], {"content_type": "application/octet-stream"}
    reply = await door.call(operation.method, path_of(operation), body, **headers, **more)
    return reply.status


# roles


def test_every_operation_says_what_it_needs_and_every_request_too() -> None:
    public = {one.id for one in OPERATIONS if one.needs is None}
    assert public == {"is_alive", "is_ready"}
    assert set(NEEDS) == set(get_args(m.Request))
    asked = {kind for kind, right in NEEDS.items() if right is Right.ASK}
    assert asked == {m.Hello, t.ShowAsker}
    assert [one.id for one in OPERATIONS if one.needs is Right.ASK] == ["relay_request"]


@pytest.mark.parametrize("role", Role)
def test_a_role_may_do_what_its_operations_need_and_nothing_else(role: Role) -> None:
    async def told(stage: Stage) -> None:
        await stage.dispatcher()
        door = Door(stage, needs_token=True)
        headers = bearer(await door.token(role))
        for operation in OPERATIONS:
            status = await status_of(door, operation, headers)
            allowed = operation.needs is None or operation.needs in RIGHTS[role]
            allowed = allowed and operation.id not in OF_ATTEMPTS
            assert (status not in (401, 403)) is allowed, (operation.id, status)

    tell(told)


def test_rights_are_as_the_docs_say() -> None:
    assert {
        Role.ADMIN: {Right.ASK, Right.READ, Right.SUBMIT, Right.WORK, Right.ADMIN},
        Role.SUBMIT: {Right.ASK, Right.READ, Right.SUBMIT},
        Role.WORKER: {Right.ASK, Right.WORK},
        Role.READ: {Right.ASK, Right.READ},
    } == RIGHTS
    needed = {one.id: one.needs for one in OPERATIONS}
    assert needed["show_job"] is Right.READ
    assert needed["submit_jobs"] is needed["cancel_job"] is Right.SUBMIT
    assert needed["pause_queue"] is needed["create_token"] is needed["list_audit"] is Right.ADMIN


def test_without_a_token_everything_but_the_public_is_refused_where_one_is_needed() -> None:
    async def told(stage: Stage) -> None:
        await stage.dispatcher()
        door = Door(stage, needs_token=True)
        for operation in OPERATIONS:
            for headers in ({}, bearer(UNKNOWN)):
                status = await status_of(door, operation, headers)
                assert (status == 401) is (operation.needs is not None), operation.id
        reply = await door.get(JOBS)
        assert reply.headers["www-authenticate"].startswith("Bearer")
        assert reply.json["code"] == "not_authenticated"

    tell(told)


@story
async def test_where_none_is_needed_a_token_still_restricts(stage: Stage, door: Door) -> None:
    assert (await door.get(JOBS)).status == 200
    assert (await door.get(JOBS, **bearer(UNKNOWN))).status == 401
    token = bearer(await door.token(Role.READ))
    assert (await door.post(JOBS, {"kind": "work"}, **token)).status == 403
    assert (await door.post(JOBS, {"kind": "work"})).status == 201


@story
async def test_an_odd_header_is_refused_and_not_repeated(stage: Stage, door: Door) -> None:
    odd = ("Basic dTpzZWNyZXQ=", "Bearer", "Bearer secret", "Bearer ls_short", UNKNOWN)
    for text in odd:
        reply = await door.get(JOBS, authorization=text)
        assert reply.status == 401
        assert b"secret" not in reply.body
        assert b"dTpz" not in reply.body
        assert b"short" not in reply.body


# tokens that end


@story
async def test_a_revoked_token_is_worth_nothing_a_second_later(stage: Stage, door: Door) -> None:
    token = await door.token(Role.READ, "mine")
    admin = bearer(await door.token())
    assert (await door.get(JOBS, **bearer(token))).status == 200
    reply = await door.call("DELETE", "/dispatcher/tokens/mine", chunks=None, **admin)
    assert (reply.status, reply.json["name"]) == (200, "mine")
    await pass_time(stage, 1.0)
    assert (await door.get(JOBS, **bearer(token))).status == 401
    again = await door.call("DELETE", "/dispatcher/tokens/nobody", chunks=None, **admin)
    assert again.status == 404


@story
async def test_an_expired_token_is_worth_nothing(stage: Stage, door: Door) -> None:
    token = bearer(await door.token(Role.READ, expires_s=60.0))
    assert (await door.get(JOBS, **token)).status == 200
    await pass_time(stage, 61)
    assert (await door.get(JOBS, **token)).status == 401


@story
async def test_a_dispatcher_asks_the_store_once_a_second(stage: Stage, door: Door) -> None:
    asked = []
    stage.store.plan = lambda verb: asked.append(verb)
    token = bearer(await door.token(Role.READ))
    for _ in range(5):
        assert (await door.get("/dispatcher/capacity", **token)).status == 200
    assert asked.count("token") == 1
    assert asked.count("tokens_used") == 1
    await pass_time(stage, 1.5)
    await door.get("/dispatcher/capacity", **token)
    assert asked.count("token") == 2
    assert asked.count("tokens_used") == 1
    [kept] = await stage.model.tokens()
    assert kept.last_used_at is not None


@story
async def test_while_the_store_is_away_nobody_is_taken_for_a_stranger(
    stage: Stage, door: Door
) -> None:
    token = bearer(await door.token(Role.READ))
    stage.store.plan = scripted(("token", Fault.BEFORE))
    # The gateway asks again.
    assert (await door.get("/dispatcher/capacity", **token)).status == 200


@story
async def test_a_stream_ends_when_its_token_is_revoked(stage: Stage, door: Door) -> None:
    job = a_job(kind="nobody")
    await stage.client().submit(job)
    token = bearer(await door.token(Role.READ, "a"))
    other = bearer(await door.token(Role.READ, "b"))
    admin = bearer(await door.token())
    path = f"{JOBS}{job.id}/events"
    async with door.stream(path, **token) as mine, door.stream(path, **other) as theirs:
        assert await mine.next()
        assert await theirs.next()
        await door.call("DELETE", "/dispatcher/tokens/a", chunks=None, **admin)
        ended = await mine.next()
        assert ended is not None
        assert (ended["event"], ended["data"]["status"]) == ("error", 401)
        assert await mine.next() is None
        await stage.model.cancel([job.id])
        told = await theirs.next()
        assert told is not None
        assert told["data"]["state"] == "cancelled"


# tokens over HTTP


@story
async def test_a_token_made_over_http_works_and_is_shown_once(stage: Stage, door: Door) -> None:
    admin = bearer(await door.token(Role.ADMIN, "root"))
    body = {"name": "mail", "role": "submit", "queues": ["mail"], "expires_s": 60}
    made = await door.post("/dispatcher/tokens/", body, **admin)
    assert made.status == 201
    secret = made.json["token"]
    assert made.json["created_by"] == "token:root"
    assert made.json["scope"] == {"queues": ["mail"], "kinds": [], "payloads": True}
    listed = await door.get("/dispatcher/tokens/", **admin)
    assert [one["name"] for one in listed.json["tokens"]] == ["root", "mail"]
    assert secret.encode() not in listed.body
    assert secret.startswith(listed.json["tokens"][1]["prefix"])
    sent = await door.post(JOBS, {"kind": "work", "queue": "mail"}, **bearer(secret))
    assert sent.status == 201


@story
async def test_over_http_nobody_makes_or_revokes_tokens_without_one(
    stage: Stage, door: Door
) -> None:
    """Otherwise who lacks the token that a command needs would make one."""
    await door.token(Role.ADMIN, "root")
    octets = {"content_type": "application/octet-stream"}
    _, new = new_token(new_id(), "mine", Role.ADMIN, Scope(), None)
    made = await door.post("/dispatcher/tokens/", {"name": "mine", "role": "admin"})
    passed_on = await door.post(
        "/dispatcher/requests/CREATETOKEN", encode(t.CreateToken(1, new))[2], **octets
    )
    revoked = await door.call("DELETE", "/dispatcher/tokens/root", chunks=None)
    assert (made.status, made.json["code"]) == (401, "not_authenticated")
    assert "longshore token create" in made.json["detail"]
    assert (passed_on.status, revoked.status) == (401, 401)
    assert [one.name for one in await stage.model.tokens()] == ["root"]
    assert (await door.get("/dispatcher/tokens/")).status == 200


@story
async def test_a_repeat_of_its_making_does_not_show_it_again(stage: Stage, door: Door) -> None:
    body, admin = {"name": "mail", "role": "read"}, bearer(await door.token())
    first = await door.post("/dispatcher/tokens/", body, idempotency_key="k", **admin)
    again = await door.post("/dispatcher/tokens/", body, idempotency_key="k", **admin)
    assert (first.status, again.status) == (201, 409)
    assert len(await stage.model.tokens()) == 2
    taken = await door.post("/dispatcher/tokens/", body, **admin)
    assert (taken.status, taken.json["code"]) == (409, "conflict")


@story
async def test_a_token_with_a_scope_makes_no_tokens(stage: Stage, door: Door) -> None:
    token = bearer(await door.token(Role.ADMIN, queues=("mail",)))
    made = await door.post("/dispatcher/tokens/", {"name": "x", "role": "admin"}, **token)
    assert made.status == 403
    for path in ("/dispatcher/tokens/", "/dispatcher/audit/", "/dispatcher/groups/"):
        assert (await door.get(path, **token)).status == 403


# scopes


async def some_jobs(stage: Stage) -> dict[str, str]:
    """The ids of jobs in two queues, of two kinds."""
    jobs = {
        f"{queue}/{kind}": a_job(queue=queue, kind=kind)
        for queue in ("mail", "post")
        for kind in ("send", "pack")
    }
    await stage.client().submit(*jobs.values())
    return {name: str(job.id) for name, job in jobs.items()}


@pytest.mark.parametrize(
    ("scope", "reached"),
    [
        ({"queues": ("mail",)}, {"mail/send", "mail/pack"}),
        ({"kinds": ("send",)}, {"mail/send", "post/send"}),
        ({"queues": ("mail",), "kinds": ("send",)}, {"mail/send"}),
        ({"queues": ("mail", "post")}, {"mail/send", "mail/pack", "post/send", "post/pack"}),
        ({"queues": ("other",)}, set()),
    ],
)
def test_a_scope_decides_which_jobs_there_are(scope: dict[str, Any], reached: set[str]) -> None:
    async def told(stage: Stage) -> None:
        await stage.dispatcher()
        door = Door(stage)
        jobs = await some_jobs(stage)
        token = bearer(await door.token(Role.SUBMIT, **scope))
        listed = await door.get(JOBS, **token)
        assert {one["id"] for one in listed.json["jobs"]} == {jobs[name] for name in reached}
        for name, id in jobs.items():
            queue, kind = name.split("/")
            is_in = name in reached
            sent = await door.post(JOBS, {"kind": kind, "queue": queue}, **token)
            assert sent.status == (201 if is_in else 403)
            for path in ("", "/why", "/history", "/logs", "/result", "/events"):
                if path == "/events" and is_in:
                    continue
                status = (await door.get(f"{JOBS}{id}{path}", **token)).status
                assert status == (404 if not is_in else 202 if path == "/result" else 200), path
            cancelled = await door.call("DELETE", JOBS + id, chunks=None, **token)
            assert cancelled.status == (200 if is_in else 404)
            state = (await door.get(JOBS + id)).json["state"]
            assert (state == JobState.CANCELLED) is is_in
            again = await door.post(f"{JOBS}{id}/retry", **token)
            assert again.status == (200 if is_in else 404)

    tell(told)


@story
async def test_pages_of_a_list_lead_on_past_what_is_out_of_scope(stage: Stage, door: Door) -> None:
    jobs = [a_job(kind="send" if n % 5 == 0 else "pack") for n in range(20)]
    await stage.client().submit(*jobs)
    token = bearer(await door.token(Role.READ, kinds=("send",)))
    found, path = [], f"{JOBS}?limit=3"
    while path:
        page = (await door.get(path, **token)).json
        found += [one["id"] for one in page["jobs"]]
        path = page["next"] and f"{JOBS}?limit=3&before={page['next']}"
    assert found == [str(job.id) for job in reversed(jobs) if job.kind == "send"]


@story
async def test_a_unique_key_names_no_job_out_of_scope(stage: Stage, door: Door) -> None:
    job = {"kind": "send", "unique_key": "one"}
    hidden = (await door.post(JOBS, {**job, "queue": "secret"})).json["id"]
    token = bearer(await door.token(Role.SUBMIT, queues=("mail",)))
    reply = await door.post(JOBS, {**job, "queue": "mail"}, **token)
    assert (reply.status, reply.json["code"]) == (409, "conflict"), reply.body
    assert hidden not in str(reply.json)
    assert (await door.post(JOBS, {**job, "queue": "mail"})).json["id"] == hidden


@story
async def test_a_group_is_reached_if_all_its_jobs_are(stage: Stage, door: Door) -> None:
    def flow(*kinds: str) -> dict[str, Any]:
        jobs = [{"key": kind, "kind": kind, "queue": "mail"} for kind in kinds]
        return {"name": "flow", "jobs": jobs}

    token = bearer(await door.token(Role.SUBMIT, kinds=("send",), queues=("mail",)))
    groups = "/dispatcher/groups/"
    refused = await door.post(groups, flow("send", "pack"), **token)
    assert refused.status == 403
    made = await door.post(groups, flow("send"), **token)
    assert made.status == 201
    own = groups + made.json["id"]
    other = groups + (await door.post(groups, flow("send", "pack"))).json["id"]
    for path in ("", "/graph"):
        assert (await door.get(own + path, **token)).status == 200
        assert (await door.get(other + path, **token)).status == 404
    for path in ("/pause", "/resume"):
        assert (await door.post(own + path, **token)).status == 200
        assert (await door.post(other + path, **token)).status == 404
    assert (await door.post(f"{other}/gates/x", **token)).status == 404
    assert (await door.post(f"{other}/retry", {"dry_run": True}, **token)).status == 404
    assert (await door.call("DELETE", other, chunks=None, **token)).status == 404
    assert (await door.call("DELETE", own, chunks=None, **token)).status == 202


@story
async def test_queues_are_shown_and_paused_within_the_scope(stage: Stage, door: Door) -> None:
    await some_jobs(stage)
    token = bearer(await door.token(Role.ADMIN, queues=("mail",)))
    kinds = bearer(await door.token(Role.ADMIN, queues=("mail",), kinds=("send",)))
    shown = await door.get("/dispatcher/queues/", **token)
    assert [one["name"] for one in shown.json["queues"]] == ["mail"]
    pause = "/dispatcher/queues/{}/pause"
    assert (await door.post(pause.format("mail"), **token)).status == 200
    assert (await door.post(pause.format("post"), **token)).status == 403
    assert (await door.post(pause.format("mail"), **kinds)).status == 403
    assert (await door.post("/dispatcher/workers/w/drain", **token)).status in (403, 404)


async def an_actor(stage: Stage, type: str) -> None:
    terms = ActorTerms()
    new = NewActor(new_id(), type, "k", pack({"count": 5}, "state"), terms=terms)
    await stage.model.start_actors([new])


@story
async def test_actors_are_reached_by_the_kinds_of_a_scope(stage: Stage, door: Door) -> None:
    await an_actor(stage, "Counter")
    await an_actor(stage, "Other")
    counter = bearer(await door.token(Role.ADMIN, kinds=("Counter",)))
    queue = bearer(await door.token(Role.ADMIN, queues=("default",)))
    actors = "/dispatcher/actors/"
    listed = await door.get(actors, **counter)
    assert [one["type"] for one in listed.json["actors"]] == ["Counter"]
    assert (await door.get(actors, **queue)).json["actors"] == []
    assert (await door.get(f"{actors}Counter/k", **counter)).status == 200
    send = {"name": "add"}
    for token, type, status in ((counter, "Other", 404), (queue, "Counter", 404)):
        assert (await door.get(f"{actors}{type}/k", **token)).status == status
        assert (await door.post(f"{actors}{type}/k/pause", **token)).status == status
        assert (await door.post(f"{actors}{type}/k/messages", send, **token)).status == 403
    assert (await door.post(f"{actors}Counter/k/messages", send, **counter)).status == 202
    assert (await door.post(f"{actors}Counter/k/pause", **counter)).status == 200


@story
async def test_nobody_has_an_actor_out_of_reach_hear_of_an_end(stage: Stage, door: Door) -> None:
    token = await door.token(Role.SUBMIT, kinds=("work", "Counter"))
    jobs = [
        structs.replace(a_job(), options=Options(watchers=(ActorWatcher(type, "k", "ended"),)))
        for type in ("Counter", "Other", "Counter")
    ]
    with asked_by(hash_of(token)):
        answers = await door.connection.submit(tuple(jobs))
    assert [one.code for one in answers] == ["", "not_allowed", ""], "neighbours are accepted"


OTHER = ActorWatcher("Other", "k", "ended")


@pytest.mark.parametrize(
    ("terms", "is_reached"),
    [
        (ActorTerms("mail"), True),
        (ActorTerms("mail", history=HistoryJob("work", "mail")), True),
        (ActorTerms("post"), False),
        (ActorTerms("mail", history=HistoryJob("work", "post")), False),
        (ActorTerms("mail", history=HistoryJob("wipe", "mail")), False),
        (
            ActorTerms(
                "mail", history=HistoryJob("work", "mail", options=Options(watchers=(OTHER,)))
            ),
            False,
        ),
    ],
)
def test_the_terms_of_a_new_actor_stay_within_the_scope(
    terms: ActorTerms, is_reached: bool
) -> None:
    @story
    async def told(stage: Stage, door: Door) -> None:
        token = await door.token(Role.SUBMIT, kinds=("work", "Counter"), queues=("mail",))
        new = NewActor(new_id(), "Counter", "k", pack({}, "state"), terms=terms)
        with asked_by(hash_of(token)), nullcontext() if is_reached else pytest.raises(NotAllowed):
            [answer] = await door.connection.actors.start([new])
            assert not answer.code
        assert (await stage.model.actor("Counter", "k") is not None) == is_reached

    told()


# web workers


@pytest.mark.parametrize(
    ("scope", "is_reached"),
    [
        ({}, True),
        ({"kinds": ("resize", "crop")}, True),
        ({"kinds": ("resize",)}, False),
        ({"queues": ("default",)}, False),
    ],
)
def test_a_web_worker_serves_the_kinds_in_its_scope(
    scope: dict[str, Any], is_reached: bool
) -> None:
    @story
    async def told(stage: Stage, door: Door) -> None:
        token = hash_of(await door.token(Role.WORKER, **scope))
        said = WebRegistration(host="127.0.0.1", port=9000, kinds=("resize", "crop"))
        with asked_by(token), nullcontext() if is_reached else pytest.raises(NotAllowed):
            await door.connection.web.register(said)
        assert len(await stage.model.web_workers()) == is_reached

    told()


@pytest.mark.parametrize("role", [Role.WORKER, Role.ADMIN])
def test_nobody_but_an_admin_resigns_the_web_worker_of_another(role: Role) -> None:
    @story
    async def told(stage: Stage, door: Door) -> None:
        owner, other = hash_of(await door.token(Role.WORKER)), hash_of(await door.token(role))
        said = WebRegistration(
            host="127.0.0.1", port=9000, kinds=("resize",), principal=owner.hex()
        )
        web = door.connection.web
        with asked_by(owner):
            id = (await web.register(said)).web_worker.id
        may = role is Role.ADMIN
        with asked_by(other), nullcontext() if may else pytest.raises(NotAllowed):
            assert await web.resign(id)
        with asked_by(owner):
            assert await web.resign(id) != may
            with pytest.raises(NotFound):
                await web.resign(new_id())

    told()


@story
async def test_nobody_ends_a_job_of_the_web_worker_of_another(stage: Stage, door: Door) -> None:
    """The token of an attempt is a number that can be guessed: it proves nobody its owner."""
    owner, other = [hash_of(await door.token(Role.WORKER)) for _ in range(2)]
    said = WebRegistration(host="127.0.0.1", port=9000, kinds=("work",), principal=owner.hex())
    web = door.connection.web
    with asked_by(owner):
        service = (await web.register(said)).web_worker
    scene = Scene(stage.model)
    info = a_worker(id=service.worker, kinds=["work"])
    attended = await stage.model.attend(scene.dispatcher, info)
    assert isinstance(attended, Attended)
    attempt = await scene.running(slot=SessionKey(service.worker, attended.session))
    report = SuccessReport(attempt.id, attempt.token, result=pack("forged", "it"))
    with asked_by(other):
        assert await web.report(report, None) is Verdict.STALE
    narrow = hash_of(await door.token(Role.ADMIN, kinds=("other",)))
    with asked_by(narrow), pytest.raises(NotFound):
        await web.report(report, None)
    assert (await scene.job(attempt.id)).state is JobState.RUNNING
    with asked_by(owner):
        assert await web.report(report, None) is Verdict.RECORDED


# payloads


@story
async def test_without_payloads_arguments_results_logs_and_states_are_hidden(
    stage: Stage, door: Door
) -> None:
    worker = await stage.worker()
    job = a_job(args=pack({"n": 42}, "arguments"))
    await stage.client().submit(job)
    await stage.until(lambda: bool(worker.jobs.running))
    await an_actor(stage, "Counter")
    token = bearer(await door.token(Role.READ, payloads=False))
    waiting = asyncio.create_task(door.get(f"{JOBS}{job.id}/result?wait_s=60", **token))
    open_wait = asyncio.create_task(door.get(f"{JOBS}{job.id}/result?wait_s=60"))
    await pass_time(stage, 1)
    worker.jobs.succeed()
    assert (await open_wait).json["result"] == 42
    assert ((await waiting).json["state"], (await waiting).json["result"]) == ("succeeded", None)
    shown = await door.get(f"{JOBS}{job.id}", **token)
    assert (shown.json["args"], shown.json["result"]) == (None, None)
    assert (await door.get(f"{JOBS}{job.id}")).json["args"] == {"n": 42}
    assert (await door.get(f"{JOBS}{job.id}/logs", **token)).status == 403
    # What may not be seen may not be guessed by a search either.
    assert (await door.get(f"{JOBS}?q=arg.n:42", **token)).status == 403
    actor = await door.get("/dispatcher/actors/Counter/k", **token)
    assert actor.json["state"] is None
    assert (await door.get("/dispatcher/actors/Counter/k")).json["state"] == {"count": 5}


# requests of the SDK, and those that go together


@story
async def test_a_request_that_is_passed_on_is_judged_like_any_other(
    stage: Stage, door: Door
) -> None:
    token = bearer(await door.token(Role.READ))
    octets = {"content_type": "application/octet-stream"}

    async def passed_on(request: m.Request, headers: dict[str, str]) -> int:
        verb, body = type(request).__name__, encode(request)[2]
        path = f"/dispatcher/requests/{verb}"
        return (await door.post(path, body, **octets, **headers)).status

    assert await passed_on(m.ListJobs(1), token) == 200
    assert await passed_on(m.Pause(1, new_id(), "mail", True), token) == 403
    assert await passed_on(m.ListJobs(1), bearer(UNKNOWN)) == 401
    assert await passed_on(m.Pause(1, new_id(), "mail", True), {}) == 200
    wrapped = on_behalf(hash_of(UNKNOWN), 1, encode(m.Hello(1)))[2]
    reply = await door.post("/dispatcher/requests/ONBEHALF", wrapped, **octets, **token)
    assert reply.status == 400


@story
async def test_submits_that_go_together_are_each_of_their_own_token(
    stage: Stage, door: Door
) -> None:
    tokens = [await door.token(Role.SUBMIT, f"t{n}", queues=(f"q{n}",)) for n in range(3)]
    sent = [
        (n, queue, door.post(JOBS, {"kind": "work", "queue": f"q{queue}"}, **bearer(token)))
        for n, token in enumerate(tokens)
        for queue in range(3)
        for _ in range(4)
    ]
    replies = await asyncio.gather(*(reply for *_, reply in sent))
    for (n, queue, _), reply in zip(sent, replies, strict=True):
        assert reply.status == (201 if n == queue else 403)
        if n == queue:
            shown = (await door.get(JOBS + reply.json["id"])).json
            assert shown["history"][0]["by"] == f"token:t{n}"


# repeats and rates


@story
async def test_the_idempotency_keys_of_two_tokens_never_meet(stage: Stage, door: Door) -> None:
    one, two = bearer(await door.token()), bearer(await door.token())
    ids = set()
    for headers in ({}, one, two, one, two, {}):
        reply = await door.post(JOBS, {"kind": "work"}, idempotency_key="k", **headers)
        ids.add(reply.json["id"])
    assert len(ids) == 3


def test_a_token_that_asks_too_often_is_told_when_to_come_back() -> None:
    async def told(stage: Stage) -> None:
        await stage.dispatcher()
        door = Door(stage, http_rate=1, http_burst=2)
        now = [0.0]
        door.gateway.rates._now = lambda: now[0]
        token, other = bearer(await door.token()), bearer(await door.token())
        statuses = [(await door.get("/dispatcher/capacity", **token)).status for _ in range(3)]
        assert statuses == [200, 200, 429]
        refused = await door.get("/dispatcher/capacity", **token)
        assert refused.json["code"] == "too_many_requests"
        assert refused.headers["retry-after"] == "1"
        assert (await door.get("/dispatcher/capacity", **other)).status == 200
        assert (await door.get("/healthz", **token)).status == 200
        now[0] = 1.0
        assert (await door.get("/dispatcher/capacity", **token)).status == 200
        assert (await door.get("/dispatcher/capacity", **token)).status == 429

    tell(told)

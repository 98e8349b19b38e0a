"""Bulks over HTTP: plans, what is done, and whom a token reaches."""

from __future__ import annotations

from typing import Any

from tests.unit.dispatcher.stage import Stage
from tests.unit.dispatcher.test_rare_orders import pass_time

from longshore.model.access import Role
from longshore.testing.builders import a_job
from longshore.testing.faults import Fault, scripted

from .api import Api
from .doors import Door, bearer, story

BULK = "/dispatcher/bulk/"
JOBS = "/dispatcher/jobs/"


async def ended(stage: Stage, door: Door, number: int) -> Any:
    """A bulk once it is over."""
    shown = (await door.get(f"{BULK}{number}")).json
    while shown["state"] == "running":
        await pass_time(stage, 1)
        shown = (await door.get(f"{BULK}{number}")).json
    return shown


async def states(door: Api, *queues: str) -> list[set[str]]:
    """The states of the jobs of each queue."""
    pages = [(await door.get(f"{JOBS}?queue={queue}")).json["jobs"] for queue in queues]
    return [{job["state"] for job in jobs} for jobs in pages]


async def test_a_plan_counts_and_does_nothing(api: Api) -> None:
    for n in range(3):
        await api.post(JOBS, {"kind": "add", "args": {"a": n, "b": 0}})
    body = {"query": "kind:add", "action": "cancel"}
    plan = await api.post(BULK, {**body, "plan": True})
    assert plan.status == 200
    assert plan.json == {
        "action": "cancel",
        "priority": None,
        "queue": None,
        "query": "kind:add",
        "plan": True,
        "matched": 3,
        "complete": True,
        "would": 3,
        "states": {"ready": 3},
        "refused": [],
    }
    assert (await api.get(BULK)).json == {"bulks": [], "next": None}
    begun = await api.post(BULK, {**body, "expected": 3})
    assert (begun.status, begun.json["number"]) == (201, 1)
    shown = (await api.get(f"{BULK}1")).json
    assert (shown["state"], shown["done"], shown["progress"]) == ("done", 3, 1.0)
    assert shown["query"] == "kind:add state:live"
    assert (await api.get(f"{BULK}{shown['id']}")).json == shown
    assert (await api.get(BULK)).json["bulks"] == [shown]


async def test_the_same_key_is_the_same_bulk(api: Api) -> None:
    body = {"query": "kind:add", "action": "cancel"}
    first = await api.post(BULK, body, idempotency_key="one")
    assert (await api.post(BULK, body, idempotency_key="one")).json["id"] == first.json["id"]
    other = await api.post(BULK, {**body, "query": "kind:sub"}, idempotency_key="one")
    assert other.json["id"] != first.json["id"]


async def test_what_cannot_be_a_bulk_is_refused(api: Api) -> None:
    for wrong, why in (
        ({"action": "cancel"}, "query"),
        ({"query": "", "action": "cancel"}, "query"),
        ({"query": " ", "action": "cancel"}, "empty"),
        ({"query": "kind:add", "action": "explode"}, "explode"),
        ({"query": "kindd:add", "action": "cancel"}, "did you mean kind:"),
        ({"query": "7", "action": "cancel"}, "one job"),
        ({"query": "kind:add", "action": "priority"}, "needs a priority"),
        ({"query": "kind:add", "action": "move"}, "needs a queue"),
        ({"query": "kind:add", "action": "retry", "queue": "mail"}, "takes no queue"),
        ({"query": "kind:add", "action": "move", "queue": "nowhere"}, "misspelt"),
    ):
        for plan in (True, False):
            reply = await api.post(BULK, {**wrong, "plan": plan})
            assert (reply.status, why in str(reply.json)) == (400, True), (wrong, reply.json)
    assert (await api.get(f"{BULK}9")).status == 404
    assert (await api.call("DELETE", f"{BULK}9")).status == 404


@story
async def test_a_bulk_does_what_its_token_reaches_and_no_more(stage: Stage, door: Door) -> None:
    jobs = [a_job(queue=queue, kind="send") for queue in ("mail", "post") for _ in range(3)]
    await stage.client().submit(*jobs)
    token = bearer(await door.token(Role.SUBMIT, "ops", queues=("mail",)))
    body = {"query": "kind:send", "action": "cancel"}
    assert (await door.post(BULK, {**body, "plan": True}, **token)).json["matched"] == 3
    begun = (await door.post(BULK, body, **token)).json
    shown = await ended(stage, door, begun["number"])
    assert (shown["by"], shown["matched"], shown["done"]) == ("token:ops", 3, 3)
    assert await states(door, "mail", "post") == [{"cancelled"}, {"ready"}]
    to = {"query": "queue:mail", "action": "move", "queue": "post"}
    assert (await door.post(BULK, to, **token)).status == 403
    last = (await door.get(f"{JOBS}{jobs[0].id}/history")).json["history"][-1]
    assert last["by"] == "token:ops, bulk 1"


@story
async def test_a_token_with_a_scope_sees_only_its_own_bulks(stage: Stage, door: Door) -> None:
    mine = bearer(await door.token(Role.SUBMIT, "mine", queues=("mail",)))
    other = bearer(await door.token(Role.SUBMIT, "other"))
    blind = bearer(await door.token(Role.SUBMIT, "blind", payloads=False))
    body = {"query": "kind:send", "action": "cancel"}
    own = (await door.post(BULK, body, **mine)).json["number"]
    foreign = (await door.post(BULK, body, **other)).json["number"]
    for token in (mine, blind):
        assert (await door.get(f"{BULK}{foreign}", **token)).status == 404
        assert (await door.call("DELETE", f"{BULK}{foreign}", chunks=None, **token)).status == 404
    assert [one["number"] for one in (await door.get(BULK, **mine)).json["bulks"]] == [own]
    assert len((await door.get(BULK, **other)).json["bulks"]) == 2
    secret = {"query": "arg.tenant:acme", "action": "cancel"}
    assert (await door.post(BULK, secret, **blind)).status == 403


@story
async def test_to_delete_takes_an_admin(stage: Stage, door: Door) -> None:
    body = {"query": "kind:send", "action": "delete"}
    for role, status in ((Role.READ, 403), (Role.SUBMIT, 403), (Role.ADMIN, 201)):
        token = bearer(await door.token(role))
        assert (await door.post(BULK, body, **token)).status == status


@story
async def test_it_leaves_entries_of_the_audit_without_the_search(stage: Stage, door: Door) -> None:
    token = bearer(await door.token(Role.ADMIN, "ops"))
    body = {"query": "error:secret", "action": "priority", "priority": 5}
    number = (await door.post(BULK, body, **token)).json["number"]
    await ended(stage, door, number)
    assert (await door.call("DELETE", f"{BULK}{number}", chunks=None, **token)).json[
        "state"
    ] == "done"
    entries = (await door.get("/dispatcher/audit/")).json["entries"]
    assert [(one["action"], one["detail"]) for one in entries] == [
        ("stop_bulk", ""),
        ("start_bulk", "priority 5"),
    ]
    assert "secret" not in str(entries)


@story
async def test_it_goes_on_after_the_store_was_away(stage: Stage, door: Door) -> None:
    await stage.client().submit(*(a_job(kind="send") for _ in range(3)))
    faults = [(verb, fault) for verb in ("advance_bulk", "running_bulks") for fault in Fault]
    stage.store.plan = scripted(*faults)
    begun = (await door.post(BULK, {"query": "kind:send", "action": "cancel"})).json
    shown = await ended(stage, door, begun["number"])
    assert (shown["state"], shown["matched"], shown["done"]) == ("done", 3, 3)

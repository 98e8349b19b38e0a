"""Who asked: what a dispatcher writes of requests, by token, by key and of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs

from longshore.client.connection import Connection
from longshore.client.tokens import new_token
from longshore.core.access import hash_of
from longshore.dispatcher.access import ACTIONS
from longshore.errors import NotAllowed, NotAuthenticated, ProtocolError
from longshore.model.access import Audited, AuditFilter, Role, Scope
from longshore.model.actor import ActorTerms, MailAction, NewActor
from longshore.model.bulk import BulkAction, NewBulk
from longshore.model.fileset import NewVersion
from longshore.model.group import AddedNode
from longshore.model.job import JobFilter, JobState, Options
from longshore.model.schedule import NewSchedule, Spec, Timing
from longshore.payload.values import pack
from longshore.testing.builders import a_group, a_job, new_id
from longshore.testing.faults import Fault, scripted
from longshore.wire import messages as m
from longshore.wire.access_messages import on_behalf, unwrapped
from longshore.wire.codec import encode

from .stage import Stage
from .test_rare_orders import pass_time
from .test_stories import tell


def connection(stage: Stage, token: bytes | None = None) -> Connection:
    """A client, or a gateway that asks for the holder of a token."""
    return Connection(
        "tcp://d1",
        connect=lambda _, heard: stage.network.connect("d1/clients", heard),
        token=lambda: token,
        timeout_s=5.0,
    )


async def a_token(stage: Stage, name: str = "mail", role: Role = Role.ADMIN) -> bytes:
    """The hash of a new token."""
    secret, new = new_token(new_id(), name, role, Scope(), None)
    await stage.model.create_token(new, "test", most=9)
    return hash_of(secret)


async def entries(stage: Stage) -> list[Audited]:
    """What the audit has, oldest first."""
    return list(reversed(await stage.model.audit(AuditFilter())))


async def told(stage: Stage) -> list[tuple[str, str, str]]:
    """Who did what to what, oldest first."""
    return [(one.principal, one.action, one.subject) for one in await entries(stage)]


class Keys:
    """Two keys: a client's and a gateway's."""

    def name_of(self, key: str) -> str:
        return key

    def may_speak_for_others(self, key: str) -> bool:
        return key == "gate"


def come_with(stage: Stage, key: str) -> None:
    """Everybody who asks from now on comes with this key."""
    listener = stage.network.listeners["d1/clients"]
    listener.key_of = lambda peer: key  # type: ignore[method-assign]


# who


def test_what_a_client_of_this_machine_changes_is_audited_as_local() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        async with connection(stage) as client:
            await client.submit((job := a_job(),))
            await client.cancel([job.id])
            await client.pause("mail")
            await client.pause("mail", False)
        assert await told(stage) == [
            ("local", "cancel", str(job.id)),
            ("local", "pause_queue", "mail"),
            ("local", "resume_queue", "mail"),
        ]
        shown = await stage.model.job(job.id)
        assert shown is not None
        assert shown.history[-1].by == "a client"

    tell(story)


def test_what_the_holder_of_a_token_changes_is_audited_by_its_name() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        async with connection(stage, await a_token(stage)) as client:
            await client.submit((job := a_job(),))
            await client.cancel([job.id])
            shown = await client.job(job.id)
        assert await told(stage) == [("token:mail", "cancel", str(job.id))]
        assert [entry.by for entry in shown.history] == ["token:mail", "token:mail"]
        assert shown.history[-1].state is JobState.CANCELLED

    tell(story)


def test_what_the_owner_of_a_key_changes_is_audited_by_the_name_of_the_key() -> None:
    async def story(stage: Stage) -> None:
        stage.keys = Keys()
        await stage.dispatcher()
        come_with(stage, "shop")
        async with connection(stage) as client:
            await client.submit((job := a_job(),))
            await client.cancel([job.id])
            shown = await client.job(job.id)
        assert await told(stage) == [("key:shop", "cancel", str(job.id))]
        assert [entry.by for entry in shown.history] == ["key:shop", "key:shop"]

    tell(story)


def test_only_the_key_of_a_gateway_may_name_a_token() -> None:
    async def story(stage: Stage) -> None:
        stage.keys = Keys()
        await stage.dispatcher()
        token = await a_token(stage)
        come_with(stage, "shop")
        async with connection(stage, token) as client:
            with pytest.raises(NotAllowed, match="curve_gateways"):
                await client.pause("mail")
        come_with(stage, "gate")
        async with connection(stage, token) as gateway:
            await gateway.pause("mail")
        assert await told(stage) == [("token:mail", "pause_queue", "mail")]

    tell(story)


def test_a_submitter_cannot_say_that_it_is_another() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        forged = structs.replace(a_job(), options=Options(by="token:ceo"))
        async with connection(stage) as client:
            [answer] = await client.submit((forged,))
        assert answer.code == "invalid_input"
        assert await stage.model.job(forged.id) is None

    tell(story)


def test_an_unknown_token_is_nobody() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        async with connection(stage, hash_of("?")) as client:
            with pytest.raises(NotAuthenticated):
                await client.hello()

    tell(story)


# once


def test_a_request_whose_answer_got_lost_leaves_one_entry() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        listener = stage.network.listeners["d1/clients"]
        send, lost = listener.send, list[Sequence[bytes]]()

        def lose_the_first(peer: bytes, frames: Sequence[bytes]) -> bool:
            if not lost:
                lost.append(frames)
                return True
            return send(peer, frames)

        listener.send = lose_the_first  # type: ignore[method-assign]
        async with connection(stage, await a_token(stage)) as client:
            await client.pause("mail")
        assert lost
        assert await told(stage) == [("token:mail", "pause_queue", "mail")]

    tell(story)


@pytest.mark.parametrize("fault", Fault)
def test_a_change_whose_commit_is_in_doubt_leaves_one_entry(fault: Fault) -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        stage.store.plan = scripted(("set_paused", fault))
        async with connection(stage) as client:
            await client.pause("mail")
        assert await told(stage) == [("local", "pause_queue", "mail")]

    tell(story)


def test_all_steps_of_a_prune_are_one_entry_and_a_dry_run_is_none() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        async with connection(stage) as client:
            jobs = tuple(a_job() for _ in range(1200))
            for part in (jobs[:600], jobs[600:]):
                await client.submit(part)
            await client.cancel([job.id for job in jobs])
            await client.prune(older_than_s=0.0, keep=0, dry_run=True)
            pruned = await client.prune([JobState.CANCELLED], keep=0)
        assert sum(pruned.removed.values()) == 1200
        actions = [one.action for one in await entries(stage)]
        assert actions == ["cancel", "cancel", "prune"]
        assert (await entries(stage))[-1].subject == "cancelled"

    tell(story)


def test_an_entry_is_cut_where_a_request_names_very_many() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        async with connection(stage) as client:
            await client.cancel([new_id() for _ in range(1000)])
        [entry] = await entries(stage)
        assert len(entry.subject) == 500
        assert entry.detail == "1000 jobs"

    tell(story)


# what


def test_every_kind_of_change_has_its_entry() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        token = await a_token(stage)
        async with connection(stage, token) as client:
            await everything(client, stage)
        found = await entries(stage)
        resumed = {"resume_group", "resume_queue", "resume_actor", "resume_schedule"}
        assert {one.action for one in found} == ACTIONS | resumed
        assert {one.principal for one in found} == {"token:mail"}
        assert len({(one.action, one.subject) for one in found}) == len(found)
        assert all(one.subject for one in found)

    tell(story)


async def everything(client: Connection, stage: Stage) -> None:
    """Each request that changes something, once; most find nothing to change."""
    nobody: Any = new_id()
    await client.cancel([nobody])
    await client.retry([nobody])
    await client.limits.set("tenant=*", 3)
    await client.limits.remove("tenant=*")
    bulk = await client.bulks.start(NewBulk(new_id(), BulkAction.CANCEL, JobFilter(kind="none")))
    await client.bulks.stop(bulk.number)
    part = a_group({"a": ""})
    await client.submit_group(part, 0)
    group = part.head.id
    await client.add_to_group(new_id(), group, [AddedNode("b", a_job())])
    await client.pause_group(group, True)
    await client.pause_group(group, False)
    await client.retry_group(group)
    await client.rerun_group(group)
    await client.open_gate(group, "a")
    await client.cancel_group(group)
    await stage.worker()
    await client.drain(["w1"])
    await client.pause("mail")
    await client.pause("mail", False)
    await client.prune()
    await actors(client)
    await schedules(client)
    await client.files.remove("results", [1])
    await client.files.collect()
    await client.files.publish(new_id(), NewVersion("results", bytes(32), 0, 0))
    _, new = new_token(new_id(), "other", Role.READ, Scope(), None)
    await client.create_token(new)
    await client.revoke_token("other")


async def schedules(client: Connection) -> None:
    asked = client.schedules
    timing = Timing((Spec(cron="0 2 * * *"),))
    await asked.put(NewSchedule(new_id(), "nightly", timing, job=a_job()))
    await asked.sync("shop", [NewSchedule(new_id(), "declared", timing, job=a_job())])
    await asked.pause("nightly", True, "a note")
    await asked.pause("nightly", False)
    await asked.trigger("nightly")
    day = datetime(2026, 1, 1, tzinfo=UTC)
    await asked.backfill("nightly", day, day)
    await asked.remove("nightly")


async def actors(client: Connection) -> None:
    actors = client.actors
    state = pack({}, "state")
    await actors.start((NewActor(new_id(), "Counter", "k", state, terms=ActorTerms()),))
    await actors.pause("Counter", "k", True)
    await actors.pause("Counter", "k", False)
    await actors.edit("Counter", "k", state, 1)
    await actors.sort_mail("Counter", "k", 1, MailAction.DROP)
    await actors.stop("Counter", "k")
    await actors.sort_undelivered(UUID(int=7), again=False)


def test_who_starts_groups_and_actors_is_kept_only_if_somebody_says_who_it_is() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        async with connection(stage) as client:
            await client.submit_group(a_group({"a": ""}), 0)
        assert await told(stage) == []

    tell(story)


def test_old_entries_go_after_a_while() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(keep_audit_s=10.0, prune_s=1.0)
        async with connection(stage) as client:
            await client.pause("mail")
        await pass_time(stage, 9)
        assert len(await entries(stage)) == 1
        await pass_time(stage, 4)
        assert await entries(stage) == []

    tell(story)


# frames


def test_a_request_for_another_is_wrapped_and_unwrapped() -> None:
    request = m.Pause(7, new_id(), "mail", True)
    token = hash_of("x")
    wrapped = on_behalf(token, 7, encode(request))
    assert unwrapped(wrapped) == (token, encode(request))


@pytest.mark.parametrize("frame", [b"", b"\xc1", b"\x80", b"\x93\x01\x02\x03"])
def test_a_malformed_request_for_another_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError, match="ONBEHALF"):
        unwrapped([b"", b"ONBEHALF", frame])


def test_a_token_that_is_no_hash_is_refused() -> None:
    wrapped = on_behalf(b"short", 7, encode(m.Hello(7)))
    with pytest.raises(ProtocolError, match="32 bytes"):
        unwrapped(wrapped)


def test_nobody_asks_for_somebody_who_asks_for_somebody() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        token = await a_token(stage)
        twice = on_behalf(token, 7, on_behalf(token, 7, encode(m.Hello(7))))
        heard: asyncio.Queue[list[bytes]] = asyncio.Queue()
        link = stage.network.connect("d1/clients", lambda arrived: heard.put_nowait(arrived[0][1]))
        link.send(b"", twice)
        frames = await heard.get()
        assert frames[1] == b"ERR"
        assert b"unknown verb" in frames[2]

    tell(story)

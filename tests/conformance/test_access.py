"""Tokens and the audit: what each store keeps of who may ask for what, and of who asked."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest
from msgspec import structs

from longshore.core.access import hash_of
from longshore.errors import Conflict, StoreUnavailable, TooLarge
from longshore.model.access import AuditEntry, AuditFilter, NewToken, Role, Scope, Token
from longshore.model.job import CancelVerdict, Refused
from longshore.ports import Store
from longshore.testing.backends import Backend, SqlBackend
from longshore.testing.builders import Scene, a_group, a_job, new_id
from longshore.testing.faults import Fault, FaultyStore, scripted

SECRET = "ls_" + "s" * 43
DAY_S = 86_400
AGE = {
    "": "UPDATE {table} SET {column} = {column} - {seconds} * 1000000",
    "longshore.": "UPDATE longshore.{table} SET {column} = {column} - "
    "make_interval(secs => {seconds})",
}


def a_token(name: str = "mail", secret: str = SECRET, **more: object) -> NewToken:
    """A token to be made."""
    token = NewToken(
        id=new_id(), name=name, prefix=secret[:9], hash=hash_of(secret), role=Role.SUBMIT
    )
    return structs.replace(token, **more)


def an_entry(request: UUID | None = None, **more: object) -> AuditEntry:
    """An entry of the audit."""
    entry = AuditEntry(
        request=request or new_id(),
        principal="token:mail",
        action="cancel",
        subject="17",
        fingerprint=b"f" * 16,
    )
    return structs.replace(entry, **more)


async def made(store: Store, new: NewToken) -> Token:
    """The token, now that it is kept."""
    token = await store.create_token(new, "local", most=100)
    assert isinstance(token, Token), token
    return token


async def age(backend: Backend, table: str, column: str, seconds: float) -> None:
    """Lets what a table holds have happened so much earlier."""
    if isinstance(backend, SqlBackend):
        words = AGE[backend.schema].format(table=table, column=column, seconds=int(seconds))
        await backend.execute(words)
    else:
        await backend.pass_time(seconds)


# tokens


async def test_a_token_is_found_by_its_hash_alone(store: Store) -> None:
    scope = Scope(("mail", "post"), ("send",), payloads=False)
    new = a_token(scope=scope, expires_s=3600.0)
    token = await made(store, new)
    assert (token.id, token.name, token.prefix) == (new.id, "mail", SECRET[:9])
    assert (token.role, token.scope, token.created_by) == (Role.SUBMIT, scope, "local")
    assert token.expires_at == token.created_at + timedelta(hours=1)
    assert await store.token(new.hash) == token
    assert await store.tokens() == [token]


async def test_a_hash_that_differs_late_is_another(store: Store) -> None:
    new = a_token()
    await made(store, new)
    assert await store.token(new.hash[:-1] + bytes([new.hash[-1] ^ 1])) is None
    assert await store.token(hash_of("another")) is None
    assert await store.token(b"") is None


async def test_a_repeat_makes_one_token(store: Store) -> None:
    new = a_token()
    assert await made(store, new) == await made(store, new)
    assert len(await store.tokens()) == 1


async def test_the_id_of_a_token_with_another_secret_is_refused(store: Store) -> None:
    new = a_token()
    await made(store, new)
    answer = await store.create_token(structs.replace(new, hash=hash_of("other")), "x", most=9)
    assert isinstance(answer, Refused)
    assert answer.code == Conflict.code
    assert await store.token(hash_of("other")) is None


async def test_a_name_is_taken_until_its_token_is_revoked(store: Store) -> None:
    first = await made(store, a_token())
    again = a_token(secret="ls_other")
    answer = await store.create_token(again, "local", most=9)
    assert isinstance(answer, Refused)
    assert answer.code == Conflict.code
    await store.revoke_token(first.id)
    assert (await made(store, again)).name == first.name


async def test_so_many_tokens_and_no_more(store: Store) -> None:
    await made(store, a_token("a", "ls_a"))
    revoked = await made(store, a_token("b", "ls_b"))
    full = await store.create_token(a_token("c", "ls_c"), "local", most=2)
    assert isinstance(full, Refused)
    assert full.code == TooLarge.code
    await store.revoke_token(revoked.id)
    assert isinstance(await store.create_token(a_token("c", "ls_c"), "x", most=2), Token)


async def test_tokens_made_at_once_keep_the_limit(backend: Backend, store: Store) -> None:
    async with backend.opened() as other:
        answers = await asyncio.gather(
            *(
                one.create_token(a_token(f"t{n}", f"ls_{n}"), "local", most=3)
                for n, one in enumerate([store, other] * 3)
            )
        )
    assert sum(isinstance(one, Token) for one in answers) == 3


async def test_a_revoked_token_is_worth_nothing(store: Store) -> None:
    new = a_token()
    await made(store, new)
    revoked = await store.revoke_token(new.id)
    assert revoked is not None
    assert revoked.revoked_at is not None
    assert await store.token(new.hash) is None
    assert await store.revoke_token(new.id) == revoked
    assert await store.tokens() == [revoked]
    assert await store.revoke_token(new_id()) is None


async def test_an_expired_token_is_worth_nothing(store: Store, backend: Backend) -> None:
    new = a_token(expires_s=60.0)
    await made(store, new)
    assert await store.token(new.hash) is not None
    await age(backend, "access_token", "expires_at", 61)
    assert await store.token(new.hash) is None


async def test_the_use_of_a_token_is_noted_once_a_minute(store: Store, backend: Backend) -> None:
    token = await made(store, a_token())
    assert token.last_used_at is None
    await store.tokens_used([token.id, new_id()])
    [used] = await store.tokens()
    assert used.last_used_at is not None
    await store.tokens_used([token.id])
    assert await store.tokens() == [used]
    await age(backend, "access_token", "last_used_at", 61)
    await store.tokens_used([token.id])
    [again] = await store.tokens()
    assert again.last_used_at is not None
    assert again.last_used_at >= used.last_used_at
    assert again.last_used_at > again.created_at - timedelta(seconds=1)


# the audit


async def test_a_change_leaves_its_entry(scene: Scene) -> None:
    [number] = await scene.accepted(job := a_job())
    entry = an_entry(subject=str(number), detail="by hand")
    verdicts = await scene.store.audited(entry).cancel([job.id], by="token:mail")
    assert verdicts == [(job.id, CancelVerdict.CANCELLED)]
    [kept] = await scene.store.audit(AuditFilter())
    assert (kept.request, kept.principal, kept.action) == (entry.request, "token:mail", "cancel")
    assert (kept.subject, kept.detail, kept.fingerprint) == (str(number), "by hand", b"f" * 16)
    assert kept.at >= (await scene.job(job.id)).created_at


async def test_a_store_that_is_not_audited_leaves_none(scene: Scene) -> None:
    await scene.accepted(job := a_job())
    scene.store.audited(an_entry())
    await scene.store.cancel([job.id])
    assert await scene.store.audit(AuditFilter()) == []


async def test_a_repeat_leaves_no_second_entry(scene: Scene) -> None:
    entry = an_entry()
    jobs = [a_job(), a_job()]
    await scene.accepted(*jobs)
    for job in jobs:
        await scene.store.audited(entry).cancel([job.id])
        await scene.store.audited(entry).cancel([job.id])
    assert len(await scene.store.audit(AuditFilter())) == 1


async def test_an_id_that_another_used_hides_no_entry(scene: Scene) -> None:
    entry = an_entry()
    others = [
        structs.replace(entry, principal="token:eve"),
        structs.replace(entry, fingerprint=b"g" * 16),
    ]
    for one in (entry, *others):
        await scene.store.audited(one).set_paused("mail", True)
    assert len(await scene.store.audit(AuditFilter())) == 3


async def test_an_entry_whose_answer_was_lost_is_there_once(scene: Scene) -> None:
    faulty = FaultyStore(scene.store, scripted(("set_paused", Fault.AFTER)))
    entry = an_entry(action="pause_queue")
    with pytest.raises(StoreUnavailable):
        await faulty.audited(entry).set_paused("mail", True)
    assert [queue.paused for queue in await scene.store.queues()] == [True]
    assert len(await scene.store.audit(AuditFilter())) == 1
    await faulty.audited(entry).set_paused("mail", True)
    assert len(await scene.store.audit(AuditFilter())) == 1


async def test_every_change_of_a_request_can_be_audited(scene: Scene) -> None:
    store = scene.store
    part = a_group({"one": "", "two": "one"})
    await scene.submit_group(part)
    id = part.head.id
    [number] = await scene.accepted(job := a_job())
    await store.audited(an_entry(action="a")).cancel([number])
    await store.audited(an_entry(action="b")).retry([job.id], "me", new_id())
    await store.audited(an_entry(action="c")).set_draining(new_id(), True)
    await store.audited(an_entry(action="d")).pause_group(id, True)
    await store.audited(an_entry(action="e")).cancel_group(id, by="me")
    await store.audited(an_entry(action="f")).create_token(a_token(), "me", most=9)
    [token] = await store.tokens()
    await store.audited(an_entry(action="g")).revoke_token(token.id)
    assert [one.action for one in await store.audit(AuditFilter())] == list("gfedcba")


async def test_entries_are_listed_by_who_what_and_when(scene: Scene, backend: Backend) -> None:
    store = scene.store
    await store.audited(an_entry(subject="jobs 1, 17")).set_paused("x", True)
    await age(backend, "audit", "at", DAY_S)
    [old] = await store.audit(AuditFilter())
    await store.audited(an_entry(principal="local", action="retry")).set_paused("x", True)
    [new, _] = await store.audit(AuditFilter())
    for wanted in (
        AuditFilter(by="local"),
        AuditFilter(action="retry"),
        AuditFilter(since=new.at),
        AuditFilter(limit=1),
    ):
        assert await store.audit(wanted) == [new]
    assert await store.audit(AuditFilter(subject="1, 1")) == [old]
    assert await store.audit(AuditFilter(before=new.number)) == [old]
    assert await store.audit(AuditFilter(before=2**70)) in ([], [new, old])
    assert await store.audit(AuditFilter(subject="%")) == []
    assert await store.audit(AuditFilter(by="\0")) == []


async def test_old_entries_and_worthless_tokens_are_forgotten(
    scene: Scene, backend: Backend
) -> None:
    store = scene.store
    await store.audited(an_entry()).set_paused("x", True)
    revoked, valid = await made(store, a_token()), await made(store, a_token("b", "ls_b"))
    await store.revoke_token(revoked.id)
    assert await store.forget_audit(60) == 0
    await age(backend, "audit", "at", 61)
    if isinstance(backend, SqlBackend):
        await age(backend, "access_token", "revoked_at", 61)
    assert await store.forget_audit(60) == 2
    assert await store.forget_audit(60) == 0
    assert await store.audit(AuditFilter()) == []
    assert await store.tokens() == [valid]


async def test_the_lanes_of_a_group_are_those_of_its_jobs(scene: Scene) -> None:
    mail, pack = a_job(kind="send", queue="mail"), a_job(kind="pack")
    jobs = {"a": mail, "b": mail, "c": pack}
    part = a_group({"a": "", "b": "a", "c": ""}, jobs=jobs)
    await scene.submit_group(part)
    found = await scene.store.group_lanes(part.head.id)
    assert list(found) == [("default", "pack"), ("mail", "send")]
    assert list(await scene.store.group_lanes(new_id())) == []

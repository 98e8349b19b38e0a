"""Who may do what: which jobs a scope reaches, and how a token is written."""

from __future__ import annotations

import pytest
from msgspec import structs

from longshore.core.access import (
    LOCAL,
    Asker,
    Right,
    check_right,
    check_submit,
    hash_of,
    is_token,
    reaches,
    reaches_actors,
    reaches_kind,
    submitted_by,
)
from longshore.errors import NotAllowed
from longshore.model.access import Role, Scope
from longshore.model.job import Options
from longshore.model.watcher import CallbackWatcher
from longshore.testing.builders import a_job

ALL = Scope()
MAIL = Scope(queues=("mail",))
SEND = Scope(kinds=("send",))
BOTH = Scope(queues=("mail",), kinds=("send",))


@pytest.mark.parametrize(
    ("scope", "reached"),
    [
        (ALL, [True, True, True, True]),
        (MAIL, [True, True, False, False]),
        (SEND, [True, False, True, False]),
        (BOTH, [True, False, False, False]),
    ],
)
def test_a_scope_reaches_jobs_by_queue_and_kind(scope: Scope, reached: list[bool]) -> None:
    lanes = [("mail", "send"), ("mail", "pack"), ("post", "send"), ("post", "pack")]
    assert [reaches(scope, *lane) for lane in lanes] == reached


def test_the_turns_of_an_actor_count_as_its_type() -> None:
    scope = Scope(kinds=("Counter",))
    assert reaches_kind(scope, "Counter@1")
    assert reaches_kind(scope, "Counter@27")
    for kind in ("Counter@", "Counter@x", "Counters@1", "@1", "Counter1"):
        assert not reaches_kind(scope, kind), kind


def test_queues_name_no_actors() -> None:
    assert reaches_actors(ALL, "Counter")
    assert reaches_actors(Scope(kinds=("Counter",)), "Counter")
    assert not reaches_actors(Scope(kinds=("Counter",)), "Other")
    assert not reaches_actors(MAIL, "Counter")


def test_an_error_says_who_asked_and_what_would_do() -> None:
    reader = Asker("token:dash", Role.READ)
    with pytest.raises(NotAllowed, match=r"token:dash has the role read.*admin, submit"):
        check_right(reader, Right.SUBMIT)
    with pytest.raises(NotAllowed, match="'pack' into queue 'mail'"):
        check_submit(Asker("token:m", Role.SUBMIT, BOTH), "mail", "pack")


def test_what_nobody_says_who_submitted_stays_as_it_is() -> None:
    jobs = [a_job(), a_job(labels=("x",))]
    assert submitted_by(LOCAL, jobs) is jobs
    named = submitted_by(Asker("key:shop"), jobs)
    assert [job.options.by for job in named] == ["key:shop", "key:shop"]
    assert [job.options.labels for job in named] == [(), ("x",)]


def test_jobs_with_callbacks_name_who_submitted_them() -> None:
    told = [CallbackWatcher("https://x.example/", headers={"Key": key}) for key in "aab"]
    jobs = [structs.replace(a_job(), options=Options(watchers=(one,))) for one in told]
    named = submitted_by(Asker("token:shop"), jobs)
    assert [job.options.by for job in named] == ["token:shop"] * 3
    assert [job.options.watchers for job in named] == [job.options.watchers for job in jobs]


def test_a_token_looks_like_one() -> None:
    assert is_token("ls_" + "a" * 43)
    for text in ("", "ls_", "ls_" + "a" * 42, "lx_" + "a" * 43, "ls_" + "ä" * 43):
        assert not is_token(text), text
    assert hash_of("a") != hash_of("b")
    assert len(hash_of("a")) == 32

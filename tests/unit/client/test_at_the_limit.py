"""`full` and `Debounce` as an app declares them, and what cannot be combined."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs

from longshore import App, Debounce, Limit
from longshore.client.described import described_debounce
from longshore.client.kind import Terms
from longshore.core.group_limits import check_unwatched
from longshore.core.limits import check_submission
from longshore.core.worker_limits import check_worker
from longshore.errors import AppError, InvalidInput
from longshore.model.limits import Debounced, Full, JobLimit, Rate
from longshore.model.worker import KindInfo, KindTerms
from longshore.payload.values import pack
from longshore.store.postgres.enqueue import enqueue
from longshore.testing.builders import a_job, a_worker

app = App("at-the-limit")
DROPS = Limit(2, key="doc", full="drop_newest")


@app.job(debounce=Debounce(5, 60, key="doc"))
async def index(doc: str) -> None: ...


def test_full_travels_with_the_job() -> None:
    job = index.options(debounce=None, limit=DROPS).call("a").submission
    assert job.options.limits == (JobLimit("doc=a", 2, full=Full.DROP_NEWEST),)


def test_a_debounced_job_is_delayed_by_its_wait() -> None:
    job = index.call("a").submission
    assert (job.delay_s, job.options.debounce) == (5.0, Debounced("doc=a", 5.0, 60.0))
    plain = index.options(debounce=None).call("a").submission
    assert (plain.delay_s, plain.options.debounce) == (None, None)


def test_without_a_key_all_jobs_of_a_kind_are_debounced() -> None:
    job = index.options(debounce=Debounce(1)).call("a").submission
    assert job.options.debounce == Debounced("all=jobs", 1.0)


def test_submits_by_name_have_what_workers_advertise() -> None:
    declared = Terms().but(debounce=Debounce(5, key="doc"))
    terms = Terms.of_kind(KindInfo(terms=declared.advertised()))
    job = terms.submission(index.call("x").id, "index", pack({"doc": "a"}, "arguments"))
    assert (job.delay_s, job.options.debounce) == (5.0, Debounced("doc=a", 5.0))


def test_a_submit_by_name_gives_the_key_that_a_function_makes() -> None:
    made = Debounce(5, key=lambda given: "doc=a")
    info = KindInfo(terms=Terms().but(debounce=made).advertised())
    check_worker(structs.replace(a_worker(), kinds={"index": info}, pools={"coroutine": 1}))
    told, args = Terms.of_kind(info), pack({"doc": "a"}, "arguments")
    with pytest.raises(InvalidInput, match=r"'index' has a debounce \(5 s\) whose key a function"):
        told.submission(UUID(int=1), "index", args)
    for given in (Debounce(1, key="doc"), None):
        job = told.but(debounce=given).submission(UUID(int=1), "index", args)
        assert job.options.debounce == (given and Debounced("doc=a", 1.0))


def test_a_worker_tells_of_no_debounce_that_cannot_be() -> None:
    info = KindInfo(terms=KindTerms(debounce=Debounced("doc", 0.0)))
    with pytest.raises(InvalidInput, match="'index': wait_s is 0"):
        check_worker(structs.replace(a_worker(), kinds={"index": info}, pools={"coroutine": 1}))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (5, Debounce(5)),
        ({"wait_s": 0.5, "max_wait_s": 9, "key": "doc"}, Debounce(0.5, 9, key="doc")),
        (None, None),
    ],
)
def test_a_body_describes_a_debounce(given: object, found: Debounce | None) -> None:
    assert described_debounce(given) == found


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("doc", "give seconds"),
        ({"key": "doc"}, "wait_s with some of"),
        ({"wait_s": 5, "kee": "doc"}, "wait_s with some of"),
        ({"wait_s": "5"}, "a number of seconds"),
        ({"wait_s": 0}, "more than 0"),
        ({"wait_s": 1, "key": "a b"}, "name=value"),
    ],
)
def test_what_cannot_describe_a_debounce_is_refused(given: object, word: str) -> None:
    with pytest.raises(InvalidInput, match=word):
        described_debounce(given)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"limit": [DROPS, Limit(1, key="t=a", full="cancel_oldest")]}, "one thing when a limit"),
    ({"debounce": Debounce(1), "limit": DROPS}, "what becomes of earlier jobs"),
    ({"debounce": Debounce(1), "unique_key": "x"}, "unique_key the first"),
    ({"debounce": Debounce(1), "delay_s": 3}, "leave out delay_s"),
    ({"debounce": Debounce(1), "run_at": datetime.now(UTC)}, "leave out delay_s and run_at"),
]


@pytest.mark.parametrize(("options", "why"), REFUSED)
def test_what_cannot_be_combined_is_refused_where_it_is_declared(
    options: dict[str, Any], why: str
) -> None:
    with pytest.raises(AppError, match=why):
        app.job(**options)(lambda doc: None)
    with pytest.raises(AppError, match=why):
        Terms().but(**options)


def test_full_needs_a_number_of_jobs() -> None:
    with pytest.raises(AppError, match="only a rate limits it"):
        Limit(key="t", rate="5/s", full="drop_newest")
    Limit(key="t", full="drop_newest")  # a rule may say the number


def test_words_and_times_are_checked() -> None:
    with pytest.raises(AppError, match="full is 'drop'; it is one of wait, drop_newest"):
        Limit(1, key="t", full="drop")
    with pytest.raises(AppError, match="more than 0 seconds"):
        Debounce(0)
    with pytest.raises(AppError, match="at least wait_s"):
        Debounce(5, 2)


def test_a_dispatcher_refuses_what_other_programs_send() -> None:
    rate_only = JobLimit("t=a", rate=Rate(1, 1.0), full=Full.CANCEL_OLDEST)
    for job, why in (
        (a_job(limits=(rate_only,)), "only a rate"),
        (a_job(debounce=Debounced("t=a", 5.0)), "delay_s is None"),
        (a_job(debounce=Debounced("t", 5.0), delay_s=5.0), "no key"),
        (a_job(debounce=Debounced("t=a", 5.0), delay_s=5.0, unique_key="x"), "unique_key"),
    ):
        with pytest.raises(InvalidInput, match=why):
            check_submission(job)


@pytest.mark.parametrize("kind", [index, index.options(debounce=None, limit=DROPS)])
def test_groups_and_own_transactions_refuse_both(kind: Any) -> None:
    job = kind.call("a").submission
    with pytest.raises(InvalidInput, match="a job of a group cannot"):
        check_unwatched(job)
    with pytest.raises(InvalidInput, match="locked until you commit"):
        next(enqueue([job]))

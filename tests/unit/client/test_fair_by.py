"""`fair_by` as an app declares it: which key a job gets, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from longshore import App
from longshore.client.kind import Terms
from longshore.core.key_words import bounds_words, fair_words
from longshore.core.limits import check_submission
from longshore.core.worker_limits import check_worker
from longshore.errors import InvalidInput
from longshore.model.fair import FairPlace
from longshore.model.job import Submission
from longshore.model.worker import KindInfo
from longshore.payload.maps import elements, pattern_of
from longshore.payload.values import pack
from longshore.testing.builders import a_job, a_worker, new_id

app = App("fair")


@app.job(fair_by="tenant")
async def report(tenant: str, pages: int = 1) -> None: ...


@app.job(fair_by=lambda given: f"team={given['name'][0]}")
async def greet(name: str) -> None: ...


def test_a_job_has_the_key_of_its_argument() -> None:
    assert report.call("acme").submission.options.fair == "tenant=acme"
    assert greet.call("anna").submission.options.fair == "team=a"


def test_a_submit_may_have_another_key_or_none() -> None:
    assert report.options(fair_by="api=maps").call("acme").submission.options.fair == "api=maps"
    assert report.options(fair_by=None).call("acme").submission.options.fair == ""


def test_submits_by_name_have_what_the_app_declares() -> None:
    info = KindInfo(terms=report._terms.advertised())
    assert info.terms.fair_by == "tenant"
    by_name = Terms.of_kind(info).submission(new_id(), "report", pack({"tenant": "acme"}, "x"))
    assert by_name.options.fair == "tenant=acme"


def test_a_submit_by_name_gives_the_key_that_a_function_makes() -> None:
    info = KindInfo(terms=greet._terms.advertised())
    check_worker(structs.replace(a_worker(), kinds={"greet": info}, pools={"coroutine": 1}))
    told, args = Terms.of_kind(info), pack({"name": "anna"}, "x")
    with pytest.raises(InvalidInput, match="'greet' has a fair_by whose key a function"):
        told.submission(new_id(), "greet", args)
    with pytest.raises(InvalidInput, match="function as fair_by"):
        told.pattern(new_id(), "greet", args, "name")
    given = told.but(fair_by="team=a").submission(new_id(), "greet", args)
    assert given.options.fair == "team=a"


def test_the_terms_of_a_job_keep_its_key() -> None:
    job = report.call("acme").submission
    again = Terms().but(fair_by=job.options.fair).submission(job.id, job.kind, job.args)
    assert again.options.fair == job.options.fair


def test_elements_of_a_map_complete_the_key() -> None:
    submission = report.map_call(["acme", "bolt"], {}).submission
    assert pattern_of(submission).options.fair == "tenant=any"
    made = elements(submission.args, {}, submission.id, 1, 0, 10).jobs
    assert [one.job.options.fair for one in made] == ["tenant=acme", "tenant=bolt"]


def test_a_map_cannot_have_a_function() -> None:
    with pytest.raises(InvalidInput, match="function as fair_by"):
        greet.map_call(["anna"], {})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["tenant", "region"], "one key"),
        (3, "give a parameter's name"),
        ("ten ant", "name=value"),
        ("tenant=*", "printable text"),
    ],
)
def test_what_cannot_be_a_fair_key_is_refused(given: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        app.job(fair_by=given)


def test_a_job_that_was_not_given_the_parameter_is_refused() -> None:
    with pytest.raises(InvalidInput, match="shares by its parameter 'region'"):
        report.options(fair_by="region").call("acme")


def test_a_dispatcher_checks_fair_keys() -> None:
    job: Submission = a_job(fair="tenant")
    with pytest.raises(InvalidInput, match="fair_by"):
        check_submission(job)
    check_submission(a_job(fair="tenant=acme"))


def test_words_say_where_a_job_stands() -> None:
    assert fair_words(FairPlace("tenant=acme", 1.0, 1200)) == (
        "fair: tenant=acme has 1,200 jobs before this one, at weight 1"
    )
    assert fair_words(FairPlace("tenant=acme", 0.5)) == (
        "fair: tenant=acme has no job before this one, at weight 0.5"
    )
    assert "about to give it a turn" in fair_words(FairPlace("tenant=acme", is_new=True))
    assert bounds_words(None, None, 2.0) == "weight 2"

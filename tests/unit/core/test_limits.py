"""Every limit of a submission is checked, and the error names the field."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs

from longshore.core.limits import check_submission
from longshore.errors import InvalidInput
from longshore.model.job import Options, RetryPolicy, Submission

JOB = Submission(UUID(int=1), "fetch", b"\x80")


def test_an_ordinary_job_is_accepted() -> None:
    check_submission(JOB)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "mail.send:v2/nightly@eu-1+x"},
        {"kind": "größe"},
        {"kind": "longshore", "queue": "longshoremen", "target": "my.longshore.x"},
        {"kind": "k" * 200, "queue": "q" * 200, "target": "linux-x86_64"},
        {"priority": -32768},
        {"priority": 32767},
        {"delay_s": 0},
        {"delay_s": 0.5},
        {"run_at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"unique_key": "u" * 500},
        {"options": Options(labels=("a b",) * 20)},
        {"options": Options(timeout_s=0.001)},
        {"options": Options(retry=RetryPolicy(attempts=1, backoff_s=0, factor=1, jitter=0))},
        {"options": Options(retry=RetryPolicy(attempts=1_000_000, jitter=1))},
    ],
)
def test_what_is_within_the_limits_is_accepted(fields: dict[str, Any]) -> None:
    check_submission(structs.replace(JOB, **fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"options": Options(turn=True)}, "only the store makes turns"),
        ({"kind": ""}, "kind is empty"),
        ({"kind": "k" * 201}, "kind has 201 characters; 200 are allowed"),
        ({"kind": "two words"}, "kind 'two words' has a character"),
        ({"kind": "nul\0"}, "kind 'nul\\x00' has a character"),
        ({"kind": 5}, "kind is 5; it must be text"),
        ({"kind": "longshore.x"}, "kind 'longshore.x' begins with 'longshore.', which is reserved"),
        ({"queue": "longshore.q"}, "queue 'longshore.q' begins with 'longshore.'"),
        ({"target": "longshore.t"}, "target 'longshore.t' begins with 'longshore.'"),
        (
            {"options": Options(labels=("fine", "longshore.l"))},
            "label 'longshore.l' begins with 'longshore.'",
        ),
        ({"queue": ""}, "queue is empty"),
        ({"queue": "a\nb"}, "queue 'a\\nb' has a character"),
        ({"target": "t" * 201}, "target has 201 characters"),
        ({"priority": 32768}, "priority is 32768; it must be a whole number"),
        ({"priority": -32769}, "priority is -32769"),
        ({"priority": 1.5}, "priority is 1.5"),
        ({"priority": True}, "priority is True"),
        ({"delay_s": -1}, "delay_s is -1; it must be a number from 0"),
        ({"delay_s": float("inf")}, "delay_s is inf"),
        ({"delay_s": float("nan")}, "delay_s is nan"),
        ({"delay_s": "5"}, "delay_s is '5'"),
        ({"delay_s": 10**400}, "delay_s is 1000"),
        ({"options": Options(timeout_s=10**400)}, "timeout_s is 1000"),
        ({"delay_s": 1e12}, "delay_s is 1000000000000.0"),
        ({"run_at": datetime(2030, 1, 1)}, "run_at 2030-01-01T00:00:00 has no time zone"),
        (
            {"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay_s": 1},
            "delay_s and run_at are both given",
        ),
        ({"unique_key": ""}, "unique_key is ''; it must be text, and not empty"),
        ({"unique_key": "u" * 501}, "unique_key has 501 characters; 500 are allowed"),
        ({"unique_key": "a\0b"}, "unique_key 'a\\x00b' has a character that cannot be printed"),
        ({"options": Options(labels=("a",) * 21)}, "21 labels are more than the 20"),
        ({"options": Options(labels=("a" * 101,))}, "label has 101 characters"),
        ({"options": Options(labels=("",))}, "label is ''"),
        ({"options": Options(timeout_s=0)}, "timeout_s is 0"),
        ({"options": Options(timeout_s=-1)}, "timeout_s is -1"),
        (
            {"options": Options(retry=RetryPolicy(attempts=0))},
            "retries is -1; it must be a whole number",
        ),
        ({"options": Options(retry=RetryPolicy(attempts=1_000_001))}, "retries is 1000000"),
        ({"options": Options(retry=RetryPolicy(backoff_s=-1))}, "backoff_s is -1"),
        ({"options": Options(retry=RetryPolicy(factor=0.5))}, "backoff_factor is 0.5"),
        (
            {"options": Options(retry=RetryPolicy(max_backoff_s=float("inf")))},
            "max_backoff_s is inf",
        ),
        ({"options": Options(retry=RetryPolicy(jitter=1.1))}, "jitter is 1.1"),
    ],
)
def test_what_is_past_a_limit_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        check_submission(structs.replace(JOB, **fields))


def test_a_refusal_names_the_job() -> None:
    with pytest.raises(InvalidInput, match="job 'fetch': priority"):
        check_submission(structs.replace(JOB, priority=99_999))


def test_a_refusal_of_an_endless_name_does_not_repeat_all_of_it() -> None:
    with pytest.raises(InvalidInput) as raised:
        check_submission(structs.replace(JOB, kind="k" * 1_000_000))
    assert len(str(raised.value)) < 400

"""Results as arguments through a dispatcher: what it refuses, and what fails."""

from __future__ import annotations

import pytest
from msgspec import structs

from longshore.model.group import GroupPart
from longshore.model.job import JobState, Submission
from longshore.payload.references import Reference
from longshore.payload.values import pack
from longshore.testing.builders import a_group, a_job
from longshore.wire import messages as m

from .stage import Stage
from .test_groups import edges, runs, submit, wait
from .test_stories import tell


def needs(*keys: str, raw: bool = False) -> Submission:
    """A job whose argument has the results of these jobs in it."""
    job = a_job(args=pack({"n": [Reference(key).as_value() for key in keys]}, "arguments"))
    return structs.replace(job, options=structs.replace(job.options, references=True, raw=raw))


def second(part: GroupPart) -> GroupPart:
    """Only the last job of a group, as a part of it."""
    return structs.replace(part, first=len(part.nodes) - 1, nodes=part.nodes[-1:])


AFTER = {"a": "", "b": "a", "c": "b"}
MALFORMED = structs.replace(needs(), args=pack({"n": {"$result": {"jab": "a"}}}, "arguments"))
BAD = {
    "a job it does not depend on": (
        a_group(AFTER, jobs={"c": needs("b", "a")}),
        "its arguments refer to the result of 'a', on which it does not depend",
    ),
    "itself": (a_group(AFTER, jobs={"c": needs("c")}), "'c', on which it does not depend"),
    "nobody": (a_group(AFTER, jobs={"c": needs("x")}), "'x', on which it does not depend"),
    "one too many in other parts": (
        second(a_group(AFTER, jobs={"c": needs("b", "x")})),
        "'x', on which it does not depend",
    ),
    "a malformed one": (
        a_group(AFTER, jobs={"c": MALFORMED}),
        "is not a reference to a result",
    ),
    "bytes that are no arguments": (
        a_group(AFTER, jobs={"c": structs.replace(needs(), args=b"\xc1")}),
        "the arguments are not msgpack",
    ),
    "a raw job": (a_group(AFTER, jobs={"c": needs("b", raw=True)}), "it is a raw job"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_reference_that_cannot_be_filled_is_refused(what: str) -> None:
    part, said = BAD[what]

    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        refused = await stage.client().ask(m.SubmitGroup(1, part, edges(part)))
        assert isinstance(refused, m.Err), refused
        assert refused.message.startswith("group 'g', job 'c': ")
        assert said in refused.message

    tell(story)


def test_references_to_jobs_of_other_parts_are_accepted() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        whole = a_group(AFTER, jobs={"c": needs("b")})
        last = second(whole)
        first = structs.replace(whole, nodes=whole.nodes[:-1])
        for part in (last, first):
            answer = await stage.client().ask(m.SubmitGroup(1, part, 2))
            assert not isinstance(answer, m.Err), answer

    tell(story)


def test_a_single_job_cannot_refer_to_results() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher()
        answers = await stage.client().ask(m.Submit(1, (needs("a"),)))
        assert isinstance(answers, tuple)
        assert answers[0].code == "invalid_input"
        assert "only a job of a group can" in answers[0].message

    tell(story)


def test_a_job_whose_result_is_not_as_expected_fails_as_invalid_arguments() -> None:
    async def story(stage: Stage) -> None:
        await stage.dispatcher(group_poll_s=1000.0)
        worker, client = await stage.worker(), stage.client()
        lost = structs.replace(
            needs(), args=pack({"n": Reference("a", ("pages",)).as_value()}, "arguments")
        )
        part = a_group({"a": "", "b": "a"}, jobs={"b": lost})
        await submit(client, part)
        await runs(stage, worker, part, "a")
        worker.jobs.succeed()
        assert [one.state for one in await wait(client, part)] == [JobState.FAILED]
        job = await stage.model.job(part.nodes[1].job.id)
        assert job is not None
        assert job.error is not None
        assert job.error.reason == "invalid_arguments"
        assert "the result of 'a' has no 'pages'" in job.error.message

    tell(story)

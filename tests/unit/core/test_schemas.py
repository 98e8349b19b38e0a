"""Arguments against what workers advertise."""

from uuid import UUID

import pytest

from longshore.core.schemas import check_arguments
from longshore.core.values import pack
from longshore.errors import InvalidArguments
from longshore.model.job import Options, Submission
from longshore.model.worker import KindInfo, Parameter

FETCH = KindInfo(parameters=(Parameter("url"), Parameter("tries", required=False)))


def job(args: object, **more: object) -> Submission:
    return Submission(UUID(int=1), "fetch", pack(args, "args"), **more)  # type: ignore[arg-type]


def test_fitting_arguments_pass() -> None:
    check_arguments(job({"url": "x"}), FETCH)
    check_arguments(job({"url": "x", "tries": 3}), FETCH)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, "job 'fetch' needs argument 'url'; it takes 'url', 'tries' \\(optional\\)"),
        ({"url": "x", "trys": 3}, "no parameter 'trys' \\(nearest: 'tries'\\)"),
        ([1], "not a map by parameter name"),
    ],
)
def test_wrong_arguments_are_named(args: object, message: str) -> None:
    with pytest.raises(InvalidArguments, match=message):
        check_arguments(job(args), FETCH)


def test_raw_jobs_and_open_kinds_take_anything() -> None:
    check_arguments(job({"any": 1}), KindInfo())
    check_arguments(Submission(UUID(int=1), "raw", b"\xff", options=Options(raw=True)), FETCH)

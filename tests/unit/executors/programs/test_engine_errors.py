"""Which errors of an engine are the job's fault, and which the machinery's."""

from __future__ import annotations

import pytest

from longshore.executors.host.programs.engine_errors import gone, not_started, pull_failed
from longshore.model.program import Outcome


@pytest.mark.parametrize(
    ("status", "said", "outcome"),
    [
        (404, "pull access denied for x, repository does not exist", Outcome.IMAGE_MISSING),
        (200, "manifest for x:9 not found: manifest unknown", Outcome.IMAGE_MISSING),
        (500, "Head https://r/v2: unauthorized: authentication required", Outcome.IMAGE_MISSING),
        (500, "no basic auth credentials", Outcome.IMAGE_MISSING),
        (500, "Get http://r/v2/: dial tcp: connection refused", Outcome.PULL_FAILED),
        (500, "net/http: TLS handshake timeout", Outcome.PULL_FAILED),
        (200, "unexpected EOF", Outcome.PULL_FAILED),
        (200, "write /layer: no space left on device", Outcome.DISK_FULL),
    ],
)
def test_a_pull_fails_for_good_only_where_there_is_no_such_image(
    status: int, said: str, outcome: Outcome
) -> None:
    end = pull_failed("x:9", status, said)
    assert end.outcome is outcome
    assert end.words == f"the image x:9 could not be pulled: {said}"


@pytest.mark.parametrize(
    ("status", "said", "outcome"),
    [
        (400, 'OCI runtime create failed: exec: "nope": not found', Outcome.NOT_STARTED),
        (500, "OCI runtime create failed: exec format error", Outcome.NOT_STARTED),
        (500, "unable to find user ann: no matching entries in passwd file", Outcome.NOT_STARTED),
        (400, "Minimum memory limit allowed is 6MB", Outcome.NOT_STARTED),
        (500, "OCI runtime create failed: resource temporarily unavailable", Outcome.ENGINE_GONE),
        (500, "mkdir /var/lib: no space left on device", Outcome.DISK_FULL),
        (500, "layer does not exist", Outcome.ENGINE_GONE),
        (503, "try again", Outcome.ENGINE_GONE),
    ],
)
def test_a_container_that_cannot_start_is_the_jobs_fault_only_where_it_says_so(
    status: int, said: str, outcome: Outcome
) -> None:
    end = not_started(status, said)
    assert end.outcome is outcome
    assert said in end.words


def test_an_error_without_words_is_named_and_a_long_one_is_cut() -> None:
    assert gone(ConnectionResetError()).words == "lost the container engine: ConnectionResetError"
    assert len(gone("x" * 5_000).words.encode()) <= 1_000

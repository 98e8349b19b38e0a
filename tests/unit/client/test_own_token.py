"""The token that a client shows: from its environment, unless that is of a job's attempt."""

from __future__ import annotations

import pytest

from longshore.client.tokens import own_token
from longshore.core.access import hash_of
from longshore.errors import ConfigError

TOKEN = "ls_" + "x" * 43


def test_a_token_in_the_environment_is_shown() -> None:
    assert own_token({"LONGSHORE_TOKEN": f" {TOKEN}\n"}) == hash_of(TOKEN)
    assert own_token({}) is None


def test_the_number_of_an_attempt_is_no_clients_token() -> None:
    """A command that a job runs finds that number there, and may run `longshore submit`."""
    assert own_token({"LONGSHORE_TOKEN": "42", "LONGSHORE_JOB": "018bcfe5"}) is None


def test_a_program_may_show_a_token_of_its_own() -> None:
    given = {"LONGSHORE_TOKEN": TOKEN, "LONGSHORE_JOB": "018bcfe5"}
    assert own_token(given) == hash_of(TOKEN)


@pytest.mark.parametrize("text", ["password", "42"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="LONGSHORE_TOKEN is no token"):
        own_token({"LONGSHORE_TOKEN": text})

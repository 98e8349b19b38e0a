"""Tickets: what was signed is read, anything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from longshore.core.tickets import (
    LONGEST_S,
    MAX_TICKET_CHARS,
    good_for_s,
    sign,
    ticket_key,
    verified,
)
from longshore.errors import NotAuthenticated
from longshore.model.fileset import Ticket
from longshore.testing.builders import new_id

KEY = ticket_key(b"secret of a store")
TICKET = Ticket(new_id(), 2**62, 3, 2**40, 1_000)


def test_ticket_is_read_by_whoever_has_the_key() -> None:
    text = sign(KEY, TICKET)
    assert verified(KEY, text, now=999.0) == TICKET
    assert len(text) < MAX_TICKET_CHARS
    assert text.isascii()


def test_ticket_of_another_fleet_is_refused() -> None:
    with pytest.raises(NotAuthenticated):
        verified(ticket_key(b"another secret"), sign(KEY, TICKET), now=0.0)


def test_ticket_that_expired_is_refused_and_names_its_job() -> None:
    with pytest.raises(NotAuthenticated, match=str(TICKET.job)):
        verified(KEY, sign(KEY, TICKET), now=1_001.0)


@given(place=st.integers(min_value=0), other=st.characters())
def test_changed_ticket_is_refused(place: int, other: str) -> None:
    text = sign(KEY, TICKET)
    place %= len(text) - 1  # the last character has bits that mean nothing
    if text[place] == other:
        return
    with pytest.raises(NotAuthenticated):
        verified(KEY, text[:place] + other + text[place + 1 :], now=0.0)


@given(st.text())
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(NotAuthenticated):
        verified(KEY, text, now=0.0)


def test_attempts_differ_in_their_tickets() -> None:
    other = structs.replace(TICKET, token=7)
    assert sign(KEY, other) != sign(KEY, TICKET)


def test_ticket_outlives_the_timeout() -> None:
    assert good_for_s(60.0) > 60.0
    assert good_for_s(None) == good_for_s(1e12) == LONGEST_S

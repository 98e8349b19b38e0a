"""`longshore undelivered`: what it asks a dispatcher, and what it prints."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest
from tests.unit.cli.conftest import ScriptedDispatcher

from longshore.model.actor import UndeliveredSend
from longshore.payload.values import pack
from longshore.wire import actor_messages as am

Captured = pytest.CaptureFixture[str]
ID = UUID("0193290c-6a00-7000-8000-0000000000aa")
AT = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
LOST = UndeliveredSend(
    ID, "Subscription", "ann", "upgrade", pack({"plan": "pro"}, "it"), AT, AT, "there is no actor"
)


def test_undelivered_messages_are_listed(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[am.ListUndelivered] = (LOST,)
    assert dispatcher.run("undelivered") == 0
    out = capsys.readouterr().out
    assert str(ID) in out
    assert "there is no actor" in out
    assert dispatcher.run("undelivered", "--json") == 0
    [shown] = json.loads(capsys.readouterr().out)
    assert (shown["id"], shown["args"], shown["name"]) == (str(ID), {"plan": "pro"}, "upgrade")


@pytest.mark.parametrize("again", [True, False])
def test_a_message_is_delivered_again_or_dropped(
    dispatcher: ScriptedDispatcher, capsys: Captured, again: bool
) -> None:
    dispatcher.answers[am.SortUndelivered] = True
    assert dispatcher.run("undelivered", str(ID), "--again" if again else "--drop") == 0
    [request] = dispatcher.asked
    assert isinstance(request, am.SortUndelivered)
    assert (request.message, request.again) == (ID, again)
    dispatcher.answers[am.SortUndelivered] = False
    assert dispatcher.run("undelivered", str(ID), "--drop") == 3
    for words in ([str(ID)], ["--drop"], [str(ID), "--again", "--drop"]):
        assert dispatcher.run("undelivered", *words) == 2
    assert "either --again or --drop" in capsys.readouterr().err

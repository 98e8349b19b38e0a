"""`longshore token` and `longshore audit`: what they ask for, and what they say."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from tests.unit.cli.conftest import ScriptedDispatcher

from longshore.core.access import hash_of
from longshore.model.access import Audited, AuditFilter, Role, Scope, Token
from longshore.testing.builders import new_id
from longshore.wire import access_messages as t

Captured = pytest.CaptureFixture[str]
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def kept(request: t.CreateToken) -> Token:
    new = request.new
    return Token(
        id=new.id,
        name=new.name,
        prefix=new.prefix,
        role=new.role,
        scope=new.scope,
        created_at=NOW,
        created_by="local",
    )


def test_a_new_token_is_printed_once_and_its_hash_is_sent(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    dispatcher.answers[t.CreateToken] = kept
    words = ["--role", "submit", "--queue", "mail", "--kind", "send", "--expires", "30d"]
    assert dispatcher.run("token", "create", *words, "--hide-payloads") == 0
    shown = capsys.readouterr()
    secret = shown.out.strip()
    [asked] = dispatcher.asked
    assert isinstance(asked, t.CreateToken)
    new = asked.new
    assert new.hash == hash_of(secret)
    assert (new.role, new.scope) == (Role.SUBMIT, Scope(("mail",), ("send",), payloads=False))
    assert new.expires_s == 30 * 86_400
    assert new.name.startswith("submit-")
    assert secret not in shown.err
    assert "queues mail; kinds send; no payloads" in shown.err


def test_as_json_the_token_is_a_field(dispatcher: ScriptedDispatcher, capsys: Captured) -> None:
    dispatcher.answers[t.CreateToken] = kept
    assert dispatcher.run("token", "create", "--role", "read", "--name", "dash", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["name"] == "dash"
    assert shown["token"].startswith(shown["prefix"])
    assert shown["scope"] == {"queues": [], "kinds": [], "payloads": True}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["create"], "--role"),
        (["create", "x", "--role", "read"], "take none"),
        (["create", "--role", "king"], "king"),
        (["create", "--role", "read", "--expires", "soon"], "soon"),
        (["revoke"], "name of a token"),
        (["list", "--role", "read"], "new token"),
    ],
)
def test_what_makes_no_sense_is_refused(
    dispatcher: ScriptedDispatcher, capsys: Captured, words: list[str], said: str
) -> None:
    assert dispatcher.run("token", *words) == 2
    assert said in capsys.readouterr().err
    assert dispatcher.asked == []


def test_the_audit_is_asked_for_what_is_wanted(
    dispatcher: ScriptedDispatcher, capsys: Captured
) -> None:
    entry = Audited(
        number=1,
        at=NOW,
        request=new_id(),
        principal="token:mail",
        action="cancel",
        subject="17",
        fingerprint=b"\x01\xff",
    )
    dispatcher.answers[t.ListAudit] = lambda request: (entry,)
    words = ["--by", "token:mail", "--action", "cancel", "--subject", "17", "--json"]
    assert dispatcher.run("audit", *words, "--since", "2030-01-01T00:00:00Z") == 0
    [asked] = dispatcher.asked
    assert isinstance(asked, t.ListAudit)
    assert asked.wanted == AuditFilter("token:mail", "cancel", "17", NOW)
    [shown] = json.loads(capsys.readouterr().out)
    assert (shown["principal"], shown["fingerprint"]) == ("token:mail", "01ff")
    assert dispatcher.run("audit", "--since", "yesterday") == 2

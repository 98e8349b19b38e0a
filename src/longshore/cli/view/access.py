"""Tokens and the audit as tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from longshore.cli.view.show import Table, time
from longshore.model.access import Audited, Scope, Token


def scope_words(scope: Scope) -> str:
    """To what a token reaches, in few words."""
    queues = f"queues {', '.join(scope.queues)}" if scope.queues else ""
    kinds = f"kinds {', '.join(scope.kinds)}" if scope.kinds else ""
    payloads = "" if scope.payloads else "no payloads"
    return "; ".join(one for one in (queues, kinds, payloads) if one) or "all"


def token_words(token: Token) -> str:
    """What a new token is good for."""
    until = f", until {time(token.expires_at)}" if token.expires_at else ""
    reach = scope_words(token.scope)
    return f"token {token.name}: {token.role}, {reach}{until}. It is shown once, here:"


def tokens_table(tokens: Sequence[Token], now: datetime) -> Table:
    """The tokens, the oldest first."""
    head = ("name", "token", "role", "reach", "state", "created", "by", "expires", "last used")
    rows = [
        (
            one.name,
            f"{one.prefix}…",
            one.role.value,
            scope_words(one.scope),
            _state(one, now),
            time(one.created_at),
            one.created_by,
            time(one.expires_at),
            time(one.last_used_at),
        )
        for one in tokens
    ]
    return Table(head, rows)


def _state(token: Token, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "good"


def audit_table(entries: Sequence[Audited]) -> Table:
    """Entries of the audit, newest first."""
    head = ("at", "by", "action", "subject", "detail")
    rows = [(time(one.at), one.principal, one.action, one.subject, one.detail) for one in entries]
    return Table(head, rows)

"""Tokens and entries of the audit as JSON, for the command line and HTTP."""

from __future__ import annotations

from typing import Any

from longshore.client.jsonable import plain
from longshore.model.access import Audited, Token


def token_json(token: Token) -> dict[str, Any]:
    """A token. Its secret is not there: nobody but its holder has it."""
    scope = token.scope
    reach = {"queues": scope.queues, "kinds": scope.kinds, "payloads": scope.payloads}
    return {**plain(token), "scope": plain(reach)}


def audited_json(entry: Audited) -> dict[str, Any]:
    """An entry of the audit."""
    return {**plain(entry), "fingerprint": entry.fingerprint.hex()}

"""What clients can ask of a dispatcher about tokens and the audit (see `service`)."""

from __future__ import annotations

from typing import assert_never

from msgspec import structs

from longshore.config import DispatcherSettings
from longshore.core.access import (
    LOCAL,
    MAX_SCOPE_NAMES,
    MAX_TOKEN_NAME_CHARS,
    PREFIX_CHARS,
    Asker,
)
from longshore.core.limits import MAX_DURATION_S, check_length, check_name
from longshore.errors import InvalidInput, NotFound, from_code
from longshore.model.access import AskerView, Audited, NewToken, Token
from longshore.model.job import Refused
from longshore.ports import Store
from longshore.wire import access_messages as m

HASH_BYTES = m.HASH_BYTES


class AccessService:
    """The use cases of clients about who may ask for what, and who asked."""

    def __init__(self, store: Store, settings: DispatcherSettings, asker: Asker = LOCAL) -> None:
        self._store = store
        self._settings = settings
        self._asker = asker

    def asked_by(self, asker: Asker, store: Store) -> AccessService:
        """The same for one who asks, over a store that says so."""
        return AccessService(store, self._settings, asker)

    async def create(self, request: m.CreateToken) -> Token:
        """Keeps a new token, of which it gets the hash alone."""
        check_new_token(request.new)
        most = self._settings.max_tokens
        made = await self._store.create_token(request.new, self._asker.name, most=most)
        if isinstance(made, Refused):
            raise from_code(made.code, made.message)
        return made

    async def revoke(self, request: m.RevokeToken) -> Token:
        """Makes a token worthless, everywhere within a second or so."""
        known = await self._store.tokens()
        # A name leads to the token that has it now, and otherwise to the last that had it.
        named = [one for one in known if request.token in (one.name, str(one.id))]
        found = max(named, key=lambda one: (one.revoked_at is None, one.created_at), default=None)
        revoked = None if found is None else await self._store.revoke_token(found.id)
        if revoked is None:
            raise NotFound(
                f"there is no token {request.token!r}; `longshore token list` lists those there are"
            )
        return revoked

    async def tokens(self) -> list[Token]:
        """All tokens, without their hashes."""
        return await self._store.tokens()

    def asker(self) -> AskerView:
        """Who asks."""
        return AskerView(self._asker.name, self._asker.role, self._asker.scope)

    async def audit(self, request: m.ListAudit) -> list[Audited]:
        """Who asked for which changes, newest first."""
        since = request.wanted.since
        if since is not None and since.utcoffset() is None:
            raise InvalidInput(
                f"since {since.isoformat()} has no time zone; give a time with its zone"
            )
        wanted = structs.replace(request.wanted, limit=max(0, request.wanted.limit))
        return await self._store.audit(wanted)


def check_new_token(new: NewToken) -> None:
    """Raises `InvalidInput` if a token cannot be made so."""
    check_length("the name of a token", new.name, MAX_TOKEN_NAME_CHARS)
    check_name("token", new.name)
    check_length("the prefix of a token", new.prefix, PREFIX_CHARS)
    if len(new.hash) != HASH_BYTES:
        raise InvalidInput(f"the hash of a token has {HASH_BYTES} bytes: it is a SHA-256")
    for word, names in (("queue", new.scope.queues), ("kind", new.scope.kinds)):
        if len(names) > MAX_SCOPE_NAMES:
            raise InvalidInput(f"a token may name {MAX_SCOPE_NAMES} {word}s; this one has more")
        for name in names:
            check_name(word, name)
    if new.expires_s is not None and not 0 < new.expires_s <= MAX_DURATION_S:
        raise InvalidInput(f"expires_s is {new.expires_s!r}; give seconds, more than 0")


async def perform_for_access(service: AccessService, request: m.AccessRequest) -> object:
    """Does what a request about tokens or the audit asks for; answers with what OK carries."""
    match request:
        case m.CreateToken():
            return await service.create(request)
        case m.RevokeToken():
            return await service.revoke(request)
        case m.ListTokens():
            return await service.tokens()
        case m.ListAudit():
            return await service.audit(request)
        case m.ShowAsker():
            return service.asker()
        case _:
            assert_never(request)

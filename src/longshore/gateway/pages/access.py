"""Who may, and who did: the tokens, and the audit. Both are for admins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta, Struct

from longshore.core.access import LOCAL, MAX_TOKEN_NAME_CHARS, Right
from longshore.gateway.models import Number
from longshore.gateway.operation import Call
from longshore.gateway.pages import parts
from longshore.gateway.pages.forms import Dialog, Field, button
from longshore.gateway.pages.html import NOTHING, Html, h, joined
from longshore.gateway.pages.page import Page, Regions, View
from longshore.model.access import Audited, AuditFilter, Role, Scope, Token

PAGE_TOKENS: Final = 50
PAGE_AUDIT: Final = 50


class TokensQuery(Struct, frozen=True):
    """Which tokens to list."""

    skip: Annotated[int, Meta(ge=0, le=2**31)] = 0


class Seen(Struct, frozen=True):
    """A page of the list, newest first."""

    skip: int
    tokens: Sequence[Token]
    more: bool


async def look(call: Call) -> Seen:
    """Asks for the tokens."""
    skip = call.query(TokensQuery).skip
    newest = sorted(await call.connection.tokens(), key=lambda one: one.created_at, reverse=True)
    newest.sort(key=lambda one: one.revoked_at is not None)
    some = newest[skip : skip + PAGE_TOKENS]
    return Seen(skip, some, len(newest) > skip + PAGE_TOKENS)


def show(seen: Seen, view: View) -> Regions:
    """The regions of the list."""
    is_named = view.asker != LOCAL
    buttons = [_create()] if is_named else []
    return {
        "search": joined(parts.heading("Tokens", buttons), None if is_named else _why_none(view)),
        "list": joined(_tokens(seen.tokens, is_named), _paging(seen, view)),
    }


def _why_none(view: View) -> Html:
    """Why there are no buttons: else whoever lacks a token could make one."""
    sign_in = h("a", "sign in", href=f"{view.root}sign-in")
    words = " with the token of an admin, or use `longshore token create`."
    return h("p", "To make and revoke tokens here, ", sign_in, words, class_="muted")


def _create() -> Html:
    longest = f"at most {MAX_TOKEN_NAME_CHARS} characters"
    roles = tuple(role.value for role in Role)
    fields = [
        Field(name="name", label="name", required=True, hint=longest),
        Field(name="role", label="role", kind="choice", choices=roles, value="read", required=True),
        Field(name="queues", label="queues", kind="words", hint="only these, with commas between"),
        Field(name="kinds", label="kinds", kind="words", hint="only these, with commas between"),
        Field(
            name="payloads",
            label="payloads",
            kind="boolean",
            value="true",
            required=True,
            hint="whether its holder sees arguments, results, logs and states",
        ),
        Field(name="expires_s", label="expires", kind="number", hint="in seconds; empty: never"),
    ]
    dialog = Dialog(
        title="Make a token",
        fields=fields,
        shows="token",
        done="The token: it is shown this once",
    )
    return button("Make a token", "POST", "dispatcher/tokens/", dialog)


def _tokens(tokens: Sequence[Token], is_named: bool) -> Html:
    rows = [
        [
            h("strong", one.name),
            h("code", f"{one.prefix}…"),
            str(one.role),
            _scope(one.scope),
            parts.when(one.last_used_at) or "never",
            parts.when(one.expires_at) or "never",
            h(
                "span",
                parts.when(one.created_at),
                f" by {one.created_by}" if one.created_by else "",
            ),
            _end(one, is_named),
        ]
        for one in tokens
    ]
    heads = ("token", "begins", "role", "reaches", "last used", "expires", "made", " ")
    return parts.table(heads, rows, "Tokens, newest first", empty="no tokens")


def _scope(scope: Scope) -> str:
    queues = f"queues {', '.join(scope.queues)}" if scope.queues else ""
    kinds = f"kinds {', '.join(scope.kinds)}" if scope.kinds else ""
    payloads = "" if scope.payloads else "no payloads"
    return "; ".join(filter(None, (queues, kinds, payloads))) or "all"


def _end(one: Token, is_named: bool) -> Html | None:
    if one.revoked_at is not None:
        return h("span", parts.state("revoked"), " ", parts.when(one.revoked_at))
    if not is_named:
        return None
    dialog = Dialog(
        title=f"Revoke {one.name}?",
        words="Whoever holds it is refused from now on. That cannot be undone.",
        done=f"{one.name} is revoked.",
        danger=True,
    )
    path = f"dispatcher/tokens/{one.id}"
    return button("Revoke", "DELETE", path, dialog, label=f"Revoke {one.name}")


def _paging(seen: Seen, view: View) -> Html:
    links, here = [], f"{view.root}tokens/"
    if seen.skip:
        links.append(h("a", "Newest", href=here, rel="first"))
    if seen.more:
        more = parts.url("", skip=seen.skip + PAGE_TOKENS)
        links.append(h("a", "Older", href=here + more, rel="next"))
    links.append(h("a", "The audit", href=f"{view.root}audit/"))
    return h("nav", links, class_="paging", aria_label="More tokens")


# the audit


class AuditQuery(Struct, frozen=True):
    """Which entries to list."""

    by: str = ""
    action: str = ""
    subject: str = ""
    before: Number | None = None


class AuditSeen(Struct, frozen=True):
    """A page of the audit."""

    query: AuditQuery
    entries: Sequence[Audited]


async def look_at_audit(call: Call) -> AuditSeen:
    """Asks for a page of entries; a search, which may look at many, is made once."""
    query = call.query(AuditQuery)
    entries = () if _is_search(query) else await _some_entries(call, query)
    return AuditSeen(query, entries)


def _is_search(query: AuditQuery) -> bool:
    return bool(query.by or query.action or query.subject)


async def _some_entries(call: Call, query: AuditQuery) -> Sequence[Audited]:
    terms = (query.by or None, query.action or None, query.subject or None)
    wanted = AuditFilter(*terms, None, query.before, PAGE_AUDIT)
    return await call.connection.audit(wanted)


async def found(call: Call, seen: AuditSeen, view: View) -> Html:
    """What a search of the audit found."""
    if not _is_search(seen.query):
        return NOTHING
    seen = AuditSeen(seen.query, await _some_entries(call, seen.query))
    return h("div", _entries(seen, view), _older(seen, view), class_="region region-list")


def show_audit(seen: AuditSeen, view: View) -> Regions:
    """The regions of the audit."""
    shown = {"search": joined(parts.heading("Audit"), _terms(seen.query))}
    if not _is_search(seen.query):
        shown["list"] = joined(_entries(seen, view), _older(seen, view))
    return shown


def _terms(query: AuditQuery) -> Html:
    boxes = [
        h(
            "input",
            type="search",
            name=name,
            value=value,
            aria_label=label,
            placeholder=label,
            autocomplete="off",
        )
        for name, value, label in (
            ("by", query.by, "who, like token:ci"),
            ("action", query.action, "action, like cancel"),
            ("subject", query.subject, "about what"),
        )
    ]
    go = h("button", "Search", type="submit")
    return h("form", boxes, go, class_="query several", role="search")


def _entries(seen: AuditSeen, view: View) -> Html:
    rows = [
        [
            parts.number(one.number),
            parts.when(one.at),
            _term(one.principal, view, seen.query, "by"),
            _term(one.action, view, seen.query, "action"),
            one.subject,
            one.detail,
        ]
        for one in seen.entries
    ]
    heads = ("entry#", "when", "who", "action", "about", "more")
    return parts.table(heads, rows, "Changes, newest first", empty="nobody asked for such a change")


def _term(words: str, view: View, query: AuditQuery, name: str) -> Html:
    kept = {"by": query.by, "action": query.action, "subject": query.subject, name: words}
    return h("a", words, href=f"{view.root}audit/{parts.url('', **kept)}")


def _older(seen: AuditSeen, view: View) -> Html:
    query, links, here = seen.query, [], f"{view.root}audit/"
    kept = {"by": query.by, "action": query.action, "subject": query.subject}
    if query.before is not None:
        links.append(h("a", "Newest", href=here + parts.url("", **kept), rel="first"))
    if len(seen.entries) == PAGE_AUDIT:
        older = parts.url("", **kept, before=seen.entries[-1].number)
        links.append(h("a", "Older", href=here + older, rel="next"))
    return h("nav", links, class_="paging", aria_label="More entries")


TOKENS: Final = Page(
    path="/tokens/",
    id="page_tokens",
    title=lambda _: "Tokens",
    look=look,
    show=show,
    query=TokensQuery,
    needs=Right.ADMIN,
)
AUDIT: Final = Page(
    path="/audit/",
    id="page_audit",
    title=lambda _: "Audit",
    look=look_at_audit,
    show=show_audit,
    once=found,
    query=AuditQuery,
    needs=Right.ADMIN,
)

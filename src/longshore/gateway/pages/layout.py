"""What is around every page: the head, the links to all pages, the sheet of keys."""

from __future__ import annotations

from typing import Final

from longshore._version import __version__
from longshore.core.access import LOCAL, RIGHTS, Asker, Right
from longshore.gateway.pages.html import Html, h, joined, trusted
from longshore.gateway.pages.static import hashed

NAVIGATION: Final = (
    ("", "Overview", "o"),
    ("jobs/", "Jobs", "j"),
    ("groups/", "Groups", "g"),
    ("actors/", "Actors", "a"),
    ("schedules/", "Schedules", "s"),
    ("queues/", "Queues", "q"),
    ("limits/", "Limits", "l"),
    ("workers/", "Workers", "w"),
    ("dispatchers/", "Dispatchers", "d"),
    ("filesets/", "Filesets", "f"),
)
"""The pages that every page links to: where, its name, and the key that follows `g`."""
FOR_ADMINS: Final = (("tokens/", "Tokens", "t"), ("audit/", "Audit", "u"))
"""Further ones, for who has the right."""


def pages_for(asker: Asker) -> tuple[tuple[str, str, str], ...]:
    """The pages that every page links to, for who looks."""
    return NAVIGATION + (FOR_ADMINS if Right.ADMIN in RIGHTS[asker.role] else ())


def document(root: str, path: str, title: str, body: Html, asker: Asker) -> str:
    """A whole page."""
    head = joined(
        h("meta", charset="utf-8"),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="color-scheme", content="light dark"),
        h("title", f"{title} · Longshore"),
        h("link", rel="icon", href=root + hashed("icon.svg"), type="image/svg+xml"),
        h("link", rel="stylesheet", href=root + hashed("style.css")),
        h("script", src=root + hashed("app.js"), type="module"),
    )
    page = joined(
        h("a", "To the content", href="#main", class_="skip"),
        _header(root, path, asker),
        h("main", body, id="main", tabindex=-1),
        _key_sheet(asker),
        h("div", id="toasts", role="status", aria_live="polite"),
    )
    markup = h("html", h("head", head), h("body", page, data_root=root), lang="en")
    return f"<!doctype html>{markup}"


def _header(root: str, path: str, asker: Asker) -> Html:
    links = [
        h(
            "a",
            name,
            href=root + where,
            aria_current="page" if _is_at(path, where) else None,
            data_key=key,
        )
        for where, name, key in pages_for(asker)
    ]
    return h(
        "header",
        h("a", _LOGO, h("span", "Longshore"), href=root, class_="brand"),
        h("nav", links, aria_label="Pages"),
        h("span", class_="spring"),
        _search(root),
        h(
            "span",
            "live",
            class_="live",
            id="live",
            title="Updates come as they happen",
            hidden=True,
        ),
        _who(root, asker),
        class_="top",
    )


def _is_at(path: str, where: str) -> bool:
    return path.startswith(where) if where else not path


def _search(root: str) -> Html:
    box = h(
        "input",
        type="search",
        name="q",
        placeholder="kind: queue: state: …",
        aria_label="Search jobs",
        autocomplete="off",
        id="search",
    )
    return h("form", box, h("kbd", "/"), action=f"{root}jobs/", class_="search", role="search")


def _who(root: str, asker: Asker) -> Html | None:
    if asker == LOCAL:
        return None
    out = h("button", "Sign out", type="submit", class_="quiet")
    form = h("form", out, action=f"{root}sign-out", method="post")
    return h("span", h("span", asker.name, title=f"role {asker.role}"), form, class_="who")


def _key_sheet(asker: Asker) -> Html:
    rows = [
        ("?", "this sheet"),
        ("/", "search jobs"),
        *((f"g {key}", name) for _, name, key in pages_for(asker)),
        ("j, k", "next, previous row"),
        ("Enter", "open the row"),
        ("n, p", "next, previous page"),
        ("Esc", "close, leave the search"),
    ]
    listed = [joined(h("dt", h("kbd", keys)), h("dd", words)) for keys, words in rows]
    close = h("button", "Close", type="submit", class_="quiet")
    body = h("form", h("h2", "Keys"), h("dl", listed), close, method="dialog")
    about = h("p", f"Longshore {__version__}", class_="muted")
    return h("dialog", body, about, id="keys", aria_label="Keys")


_LOGO: Final = trusted(
    '<svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true" class="logo">'
    '<path d="M12 3v13M7 7h10M4 14c1 5 5 7 8 7s7-2 8-7l-3 2M4 14l3 2" fill="none" '
    'stroke="currentColor" stroke-width="2" stroke-linecap="round"/></svg>'
)

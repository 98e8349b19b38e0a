"""Signing in with a token, signing out, and errors as pages.

The token lies in a cookie that scripts cannot read and that browsers send with requests of our own
pages only (`asking.cookie_token` says which requests it counts for). The cookie has no path: so it
is for all below the folder that a proxy puts the pages into.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qs

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from longshore.core.access import LOCAL, Right, check_right, hash_of, is_token
from longshore.errors import InvalidInput, LongshoreError, NotAuthenticated
from longshore.gateway.asking import COOKIE, comes_from_elsewhere
from longshore.gateway.operation import Call, Operation
from longshore.gateway.pages.html import Html, h, joined
from longshore.gateway.pages.layout import document
from longshore.gateway.pages.page import page_answer, path_of, root_of
from longshore.gateway.problems import problem_answer, status_of
from longshore.gateway.streams import EVENT_STREAM

_MOST_BYTES: Final = 8_192
_NEXT: Final = re.compile(r"[\w./?=&%:+,~@-]*", re.ASCII)
_SAFE: Final = "HttpOnly; SameSite=Strict"


class SignInQuery(Struct, frozen=True):
    """Where to go after signing in."""

    next: str = ""


async def _show(call: Call) -> Response:
    """The form."""
    return page_answer(_page(root_of(call.request), call.query(SignInQuery).next))


async def _sign_in(call: Call) -> Response:
    """Takes a token, and leads to where its holder came from."""
    given = await _form(call)
    token, then = given.get("token", "").strip(), given.get("next", "")
    root = root_of(call.request)
    try:
        if not is_token(token):
            raise NotAuthenticated("this is no token: one begins with ls_ and has 46 characters")
        asker = await call.gateway.askers.asker(hash_of(token))
        check_right(asker, Right.READ)
    except LongshoreError as error:
        return page_answer(_page(root, then, str(error)), status_of(error))
    secure = "; Secure" if _is_encrypted(call.request) else ""
    headers = {
        "Location": f"{root}{_checked(then)}",
        "Set-Cookie": f"{COOKIE}={token}; {_SAFE}{secure}",
    }
    return Response(status_code=303, headers=headers)


async def _sign_out(call: Call) -> Response:
    """Forgets the token."""
    forget = f"{COOKIE}=; Max-Age=0; {_SAFE}"
    headers = {"Location": root_of(call.request), "Set-Cookie": forget}
    return Response(status_code=303, headers=headers)


async def _form(call: Call) -> dict[str, str]:
    data = b""
    async for part in call.request.stream():
        data += part
        if len(data) > _MOST_BYTES:
            raise InvalidInput("the form is too large; give a token")
    given = parse_qs(data.decode("utf-8", "replace"))
    return {name: values[0] for name, values in given.items()}


def _is_encrypted(request: Request) -> bool:
    """Whether the browser speaks HTTPS: with us, or with a proxy, as its Origin tells."""
    origin = request.headers.get("origin", "")
    return request.url.scheme == "https" or origin.startswith("https://")


def _checked(then: str) -> str:
    """A place below the root, or the root itself."""
    place = then.lstrip("/")
    return place if _NEXT.fullmatch(place) and ".." not in place else ""


def _page(root: str, then: str, error: str = "") -> str:
    token = h(
        "input",
        type="password",
        name="token",
        id="token",
        required=True,
        autocomplete="current-password",
        placeholder="ls_…",
        autofocus=True,
    )
    form = h(
        "form",
        h("label", "Token", for_="token"),
        token,
        h("input", type="hidden", name="next", value=_checked(then)),
        h("button", "Sign in", type="submit"),
        method="post",
        action=f"{root}sign-in",
        class_="sign-in",
    )
    how = h(
        "p", "An admin makes one with ", h("code", "longshore token create"), ".", class_="muted"
    )
    said = h("p", error, class_="problem", role="alert") if error else None
    body = h("section", h("h1", "Sign in"), said, form, how, class_="card narrow")
    return document(root, "sign-in", "Sign in", body, LOCAL)


# errors


def error_answer(request: Request, error: LongshoreError) -> Response:
    """An error as a page, to a browser; who has no token is asked for one."""
    if EVENT_STREAM in request.headers.get("accept", "") or request.method not in ("GET", "HEAD"):
        return problem_answer(error)
    root, query = root_of(request), request.url.query
    here = path_of(request) + (f"?{query}" if query else "")
    if isinstance(error, NotAuthenticated):
        if comes_from_elsewhere(request.headers):
            # The cookie does not come with a link from elsewhere. It does with our own.
            return page_answer(f"<!doctype html>{_again(root, here)}")
        return page_answer(_page(root, here), 401)
    back = h("p", h("a", "To the overview", href=root))
    words = h("section", h("h1", _title(error)), h("p", str(error)), back, class_="card narrow")
    status = status_of(error)
    headers = getattr(error, "headers", {})
    return page_answer(
        document(root, path_of(request), _title(error), words, LOCAL), status, headers
    )


def _again(root: str, here: str) -> Html:
    where = f"0; url={root}{_checked(here)}"
    return joined(h("meta", http_equiv="refresh", content=where), h("title", "Longshore"))


def _title(error: LongshoreError) -> str:
    return error.code.replace("_", " ").capitalize()


SIGN_IN: Final = (
    Operation(
        method="GET",
        path="/sign-in",
        id="page_sign_in",
        summary="Show the form for a token.",
        needs=None,
        do=_show,
        query=SignInQuery,
        answers={200: str},
        is_page=True,
    ),
    Operation(
        method="POST",
        path="/sign-in",
        id="sign_in",
        summary="Sign in.",
        needs=None,
        do=_sign_in,
        answers={303: None},
        is_page=True,
        takes_form=True,
    ),
    Operation(
        method="POST",
        path="/sign-out",
        id="sign_out",
        summary="Sign out.",
        needs=None,
        do=_sign_out,
        answers={303: None},
        is_page=True,
        takes_form=True,
    ),
)

"""A page, and how it is answered: as a document, or as a stream of what changes in it.

Theory. A page is a function that looks (asks dispatchers) and one that shows (makes regions of what
was seen: pieces of HTML with a name). Its address answers a browser that navigates with the whole
document, and one that asks for `text/event-stream` with the regions that changed, as long as it
listens. All tabs at one address whose holders have the same token share one look and one
rendering; each tab gets those regions that differ from what it shows.

A region must not hold what changes by itself, such as an age: it holds the time, and the browser
says how long ago that was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct, structs
from starlette.requests import Request
from starlette.responses import Response

from longshore.core.access import LOCAL, RIGHTS, Asker, Right
from longshore.gateway.asking import asking
from longshore.gateway.operation import Call, NoQuery, Operation
from longshore.gateway.pages.html import Html, h
from longshore.gateway.pages.layout import document
from longshore.gateway.streams import EVENT_STREAM, Event, Events

T = TypeVar("T")

Regions = Mapping[str, Html]
"""The pieces of a page by their names, in order. The names are ids in the document."""


class View(Struct, frozen=True):
    """For whom a page is made, and where it lies."""

    root: str
    """The way from the page to the root of all pages, such as `../`."""
    path: str
    """Where the page is, seen from there."""
    asker: Asker
    live: bool = False
    """Whether it is for a stream, which the browser puts into a document that it has."""

    def may(self, right: Right) -> bool:
        """Whether who looks has this right: buttons that it does not allow are not shown."""
        return right in RIGHTS[self.asker.role]

    @property
    def sees_payloads(self) -> bool:
        """Whether who looks sees arguments, results and logs."""
        return self.asker.scope.payloads


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """One page: a row of the table of pages."""

    path: str
    id: str
    title: Callable[[T], str]
    look: Callable[[Call], Awaitable[T]]
    """What it shows, asked of dispatchers with the rights of who looks."""
    show: Callable[[T, View], Regions]
    """Its regions. It is pure, and knows no clock."""
    once: Callable[[Call, T, View], Awaitable[Html]] | None = None
    """What comes last, and does not change with the rest."""
    again_s: Callable[[T], float | None] = lambda seen: None
    """In how many seconds it is looked at again although nothing has changed, if that is needed."""
    query: type[Struct] = NoQuery
    needs: Right = Right.READ

    def operation(self) -> Operation:
        """The page as a row of the gateway's routes."""
        return Operation(
            method="GET",
            path=self.path,
            id=self.id,
            summary="Show a page.",
            needs=self.needs,
            do=self.answer,
            query=self.query,
            answers={200: str},
            is_page=True,
        )

    async def answer(self, call: Call) -> Response:
        """The page, or the stream of its changes."""
        view = await view_of(call)
        if EVENT_STREAM in call.request.headers.get("accept", ""):
            return call.gateway.streams.answer(self._events(call, view))
        seen = await self.look(call)
        body = [_region(name, html) for name, html in self.show(seen, view).items()]
        if self.once is not None:
            body.append(await self.once(call, seen, view))
        live = h("div", body, class_=f"page {self.id.replace('_', '-')}", data_live=True)
        return page_answer(document(view.root, view.path, self.title(seen), live, view.asker))

    async def _events(self, call: Call, view: View) -> Events:
        """The regions that changed, whenever some have; all, at first."""
        rendering = _Rendering(self, call, view)
        shown: dict[str, Html] = {}
        key = ("page", call.request.url.path, call.request.url.query)
        news = call.gateway.streams.news(key, rendering.look, again_s=rendering.again_s)
        async with aclosing(news):
            async for regions in news:
                changed = {
                    name: str(html) for name, html in regions.items() if shown.get(name) != html
                }
                gone = [name for name in shown if name not in regions]
                shown = dict(regions)
                yield Event("regions", {"regions": changed, "gone": gone})


class _Rendering(Generic[T]):
    """Looks, and renders what it sees, unless it saw that the last time."""

    def __init__(self, page: Page[T], call: Call, view: View) -> None:
        self._page = page
        self._call = call
        self._view = structs.replace(view, live=True)
        self._seen: T | None = None
        self._regions: Regions = {}

    async def look(self) -> Regions:
        """The regions as they are now."""
        seen = await self._page.look(self._call)
        if seen != self._seen:
            self._regions, self._seen = self._page.show(seen, self._view), seen
        return self._regions

    def again_s(self) -> float | None:
        """In how many seconds to look again although nothing has changed, if that is needed."""
        return None if self._seen is None else self._page.again_s(self._seen)


def _region(name: str, html: Html) -> Html:
    return h("div", html, id=f"r-{name}", class_=f"region region-{name}")


async def view_of(call: Call) -> View:
    """For whom the page of a request is made."""
    token = asking()
    asker = LOCAL if token is None else await call.gateway.askers.asker(token)
    return View(root_of(call.request), path_of(call.request), asker)


def root_of(request: Request) -> str:
    """The way back to the root, relative, so that a proxy may put the pages anywhere."""
    return "../" * (request.scope["path"].count("/") - 1) or "./"


def path_of(request: Request) -> str:
    """Where the page of a request is, seen from the root."""
    path: str = request.scope["path"]
    return path.removeprefix("/")


def page_answer(
    markup: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer that is a page."""
    own = {"Vary": "Accept, Cookie", **PAGE_HEADERS}
    return Response(markup, status, {**own, **(headers or {})}, media_type="text/html")


PAGE_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""What every page says to browsers, beside what every answer says (`guard`)."""

AnyPage = Page[Any]

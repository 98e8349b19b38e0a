"""A poller that keeps to the rate of somebody else's API.

One actor stands for the API. Whoever wants a feed tells it so. It has one request under way at a
time, and asks again only after the time that the API allows, whatever dies meanwhile.

Run it by hand from this folder, beside any server that answers `GET /feed?after=…` with JSON:

    longshore up --app poller_app:app
    longshore actor start Poller api url=http://127.0.0.1:8000
    longshore actor send Poller api follow feed=news
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from longshore import ActorContext, App, Outcome

app = App("poller")


class Poller:
    """Polls feeds in turn, no faster than it may."""

    url: str
    wait_s: float = 0.01
    """The time between two requests. The API says what it must be."""
    feeds: dict[str, int] = {}  # noqa: RUF012  (each actor has a dict of its own)
    items: int = 0

    async def follow(self, ctx: ActorContext, feed: str) -> None:
        """From now on this feed is polled, too."""
        if feed in self.feeds:
            return
        self.feeds[feed] = 0
        if len(self.feeds) == 1:
            ctx.timer("poll", after_s=0)

    async def on_timer_poll(self, ctx: ActorContext) -> None:
        """Asks for the feed that waited longest. The answer comes as a message."""
        feed = next(iter(self.feeds))
        url = f"{self.url}/{feed}?after={self.feeds[feed]}"
        ctx.submit(fetch.call(url), then="fetched", about=feed)

    async def fetched(self, ctx: ActorContext, outcome: Outcome) -> None:
        """A request has ended, in whatever way; its feed goes to the end of the line."""
        last = self.feeds.pop(outcome.about)
        page = outcome.value or {"items": [], "last": last, "wait_s": self.wait_s}
        self.feeds[outcome.about] = page["last"]
        self.items += len(page["items"])
        self.wait_s = page.get("each_s", self.wait_s)
        ctx.timer("poll", after_s=page.get("wait_s", self.wait_s))


pollers = app.actor(Poller)


@app.job(retries=3, backoff_s=0.5, isolation="thread")
def fetch(url: str) -> dict[str, Any]:
    """One request. If the API says that it came too soon, that is an answer, too."""
    after = int(url.rpartition("=")[2])
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            page: dict[str, Any] = json.load(response)
            return page
    except urllib.error.HTTPError as error:
        if error.code != 429:
            raise
        each_s, wait_s = float(error.headers["X-Interval"]), float(error.headers["Retry-After"])
        return {"items": [], "last": after, "each_s": each_s, "wait_s": wait_s}

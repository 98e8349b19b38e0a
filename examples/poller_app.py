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

from longshore import ActorContext, App, Context

app = App("poller")

LATE_S = 5.0
"""After so long without an answer it asks again: the job that asked has failed for good."""


class Poller:
    """Polls feeds in turn, no faster than it may."""

    url: str
    wait_s: float = 0.01
    """The time between two requests. The API says what it must be."""
    feeds: dict[str, int] = {}  # noqa: RUF012  (each actor has a dict of its own)
    items: int = 0
    asked: int = 0
    refused: int = 0

    async def follow(self, ctx: ActorContext, feed: str) -> None:
        """From now on this feed is polled, too."""
        self.feeds.setdefault(feed, 0)
        if not ctx.timers:
            ctx.timer("poll", after_s=0)

    async def on_timer_poll(self, ctx: ActorContext) -> None:
        """Asks for the feed that waited longest. The answer comes as a message."""
        feed = next(iter(self.feeds))
        self.asked += 1
        ctx.submit(fetch.call(ctx.key, f"{self.url}/{feed}?after={self.feeds[feed]}", feed))
        ctx.timer("poll", after_s=LATE_S)

    async def page(self, ctx: ActorContext, feed: str, items: int, last: int) -> None:
        """What a feed had; it goes to the end of the line."""
        del self.feeds[feed]
        self.feeds[feed] = last
        self.items += items
        ctx.timer("poll", after_s=self.wait_s)

    async def too_fast(self, ctx: ActorContext, feed: str, each_s: float, wait_s: float) -> None:
        """The API says how long to wait now, and how long between requests from then on."""
        self.refused += 1
        self.wait_s = each_s
        ctx.timer("poll", after_s=wait_s)


pollers = app.actor(Poller)


@app.job(retries=3, backoff_s=0.2, isolation="thread")
def fetch(ctx: Context, poller: str, url: str, feed: str) -> None:
    """One request. Its message and its success are one commit: the poller hears of it once."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            got = json.load(response)
    except urllib.error.HTTPError as error:
        if error.code != 429:
            raise
        each_s, wait_s = float(error.headers["X-Interval"]), float(error.headers["Retry-After"])
        ctx.send(pollers.ref(poller), "too_fast", feed=feed, each_s=each_s, wait_s=wait_s)
    else:
        ctx.send(pollers.ref(poller), "page", feed=feed, items=len(got["items"]), last=got["last"])

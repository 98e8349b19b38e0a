"""What a gateway counts for its metrics."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longshore.core import metering as m
from longshore.core.metering import Histogram, Sample
from longshore.gateway.streams import EVENT_STREAM

MEASURED: Final = "longshore.measured"
"""Under this name the scope of a request has what is measured of it."""
NO_OPERATION: Final = "none"
"""The operation of a request that none answers, such as one that the guard refuses."""


class Measured:
    """What is measured of one request."""

    def __init__(self) -> None:
        self.operation = NO_OPERATION
        self.status = 0
        self.is_stream = False

    @property
    def status_class(self) -> str:
        """Its status as 2xx, 4xx, …; `gone` if the client went away before it was answered."""
        return f"{self.status // 100}xx" if self.status else "gone"


class Meter:
    """The counters of a gateway."""

    def __init__(self) -> None:
        self._answered: Counter[tuple[str, str]] = Counter()
        self._times: defaultdict[str, Histogram] = defaultdict(
            lambda: Histogram(m.REQUEST_TIME.buckets)
        )
        self.under_way = 0

    def answered(self, one: Measured, seconds: float) -> None:
        """A request was answered, up to its last byte."""
        self._answered[one.operation, one.status_class] += 1
        if not one.is_stream:
            self._times[one.operation].observe(seconds)

    def samples(self) -> Iterator[Sample]:
        """All counters as they are now."""
        for labels, count in self._answered.items():
            yield Sample(m.REQUESTS, labels, count)
        for operation, histogram in self._times.items():
            yield Sample(m.REQUEST_TIME, (operation,), histogram)
        yield Sample(m.UNDER_WAY, (), self.under_way)


class Metering:
    """Measures the requests that an application answers."""

    def __init__(self, app: ASGIApp, meter: Meter) -> None:
        self._app = app
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        one = Measured()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                one.status = message["status"]
                kind = Headers(raw=message["headers"]).get("content-type", "")
                one.is_stream = kind.startswith(EVENT_STREAM)
            await send(message)

        began = time.monotonic()
        self._meter.under_way += 1
        try:
            await self._app({**scope, MEASURED: one}, receive, sending)
        finally:
            self._meter.under_way -= 1
            self._meter.answered(one, time.monotonic() - began)

"""The pieces that pages share: times, states, tables, links, buttons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlencode

from longshore.core.timing import span, summary
from longshore.gateway.pages.html import Child, Html, h
from longshore.model.group import GroupState
from longshore.model.job import JobError, JobState

_SYMBOLS: Final = {
    "waiting": "◌",
    "delayed": "◔",
    "ready": "○",
    "running": "▶",
    "cancelling": "◪",
    "succeeded": "✓",
    "failed": "✕",
    "dependency_failed": "⊘",
    "skipped": "–",
    "cancelled": "◼",
    "staging": "◌",
    "paused": "‖",
    "sleeping": "☾",
    "stopping": "◪",
    "parked": "‖",
    "queued": "◔",
    "active": "●",
    "over": "–",
    "to be submitted": "◔",
    "submitted": "✓",
    "caught_up": "✓",
    "expired": "×",
    "full": "■",
    "added": "+",
    "removed": "−",
    "changed": "≠",
    "revoked": "×",
    "alive": "●",
    "draining": "◑",
    "silent": "?",
    "gone": "×",
}


def state(name: JobState | GroupState | str) -> Html:
    """A state: a symbol, a colour and the word, so that none of them is needed alone."""
    word = str(name)
    symbol = h("span", _SYMBOLS.get(word, "•"), aria_hidden="true")
    return h("span", symbol, f" {word.replace('_', ' ')}", class_=f"state s-{word}")


def when(at: datetime | None, words: str = "") -> Html | None:
    """A moment. The browser says how long ago it was; without scripts, it is a time of day."""
    if at is None:
        return None
    text = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return h("time", text, datetime=iso(at), data_age=words or "ago", title=f"{text} UTC")


def since(at: datetime | None) -> Html | None:
    """For how long something goes on: a clock in the browser, otherwise since when."""
    if at is None:
        return None
    text = at.astimezone(UTC).strftime("since %H:%M:%S")
    return h("time", text, datetime=iso(at), data_age="for")


def clock(at: datetime | None) -> Html | None:
    """A moment to the millisecond, in the browser's own zone, otherwise in UTC."""
    if at is None:
        return None
    text = at.astimezone(UTC).strftime("%H:%M:%S.%f")[:-3]
    full = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return h("time", text, datetime=iso(at), data_clock=True, title=f"{full} UTC")


def iso(at: datetime) -> str:
    """A time as machines read it."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def took(begun: datetime | None, ended: datetime | None) -> Html | str | None:
    """How long something took; a clock, if it has not ended."""
    if begun is None:
        return None
    return since(begun) if ended is None else span(max(0.0, (ended - begun).total_seconds()))


def number(count: float) -> str:
    """A number with separators."""
    return f"{count:,.0f}"


def rate(per_second: float) -> str:
    """How many in a second, in as many digits as tell something."""
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.1f}"


def error_words(error: JobError) -> str:
    """An error in a line: the name of what was raised, without its module, and its message."""
    words = summary(error)
    name = error.type.rpartition(".")[2]
    return words.replace(error.type, name, 1) if error.type else words or error.reason.value


def url(root: str, *path: object, **query: object) -> str:
    """A relative address from parts of a path; what they hold cannot lead elsewhere."""
    place = "/".join(quote(str(part), safe="") for part in path)
    given = [(name, str(value)) for name, value in query.items() if value not in (None, "")]
    return f"{root}{place}{'?' if given else ''}{urlencode(given)}"


def job_link(root: str, number: int, words: str = "") -> Html:
    """A link to a job."""
    return h("a", words or f"{number}", href=url(root, "jobs", number), class_="num")


def group_link(root: str, number: int, words: str = "") -> Html:
    """A link to a group."""
    return h("a", words or f"{number}", href=url(root, "groups", number), class_="num")


def jobs_url(root: str, query: str) -> str:
    """A search for jobs."""
    return f"{url(root, 'jobs')}/?{urlencode({'q': query})}"


def heading(title: Child, *beside: Child) -> Html:
    """The title of a page, and what stands beside it."""
    return h("div", h("h1", title), h("div", beside, class_="actions"), class_="heading")


def section(title: str, *body: Child, id: str | None = None) -> Html:
    """A part of a page with a title of its own."""
    return h("section", h("h2", title), body, class_="card", id=id)


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Child]], caption: str, *, empty: str = "none"
) -> Html:
    """A table. On a narrow screen each row becomes a block with the heads as labels.

    A head that ends with `#` is that of numbers.
    """
    names = [head.removesuffix("#") for head in heads]
    kinds = ["num" if head.endswith("#") else None for head in heads]
    body = [
        h(
            "tr",
            [
                h("td", cell, data_label=name, class_=kind)
                for cell, name, kind in zip(row, names, kinds, strict=True)
            ],
        )
        for row in rows
    ]
    if not body:
        return h("p", empty, class_="muted empty")
    top = [h("th", name, scope="col", class_=kind) for name, kind in zip(names, kinds, strict=True)]
    return h(
        "table",
        h("caption", caption, class_="sr"),
        h("thead", h("tr", top)),
        h("tbody", body),
        class_="rows",
    )


def facts(pairs: Iterable[tuple[str, Child]]) -> Html:
    """What is known of something, name by name; what is not there is left out."""
    shown = [(name, value) for name, value in pairs if value is not None and value != ""]
    return h(
        "dl", [h("div", h("dt", name), h("dd", value)) for name, value in shown], class_="facts"
    )


def action(
    words: str,
    method: str,
    path: str,
    *,
    confirm: str = "",
    body: str = "",
    plan: bool = False,
    danger: bool = False,
    done: str = "",
) -> Html:
    """A button that calls the API. It needs scripts, and is hidden without them.

    `path` is relative to the root of the pages. With `plan`, it asks for a dry run first and shows
    it; with `confirm`, it asks whether it shall. `done` is said when it was done.
    """
    return h(
        "button",
        words,
        type="button",
        class_="action danger" if danger else "action",
        data_method=method,
        data_path=path,
        data_confirm=confirm or None,
        data_body=body or None,
        data_plan=plan,
        data_done=done or None,
    )


def bar(shares: Sequence[tuple[str, int]], total: int, label: str) -> Html:
    """A bar of parts, as SVG: each part has the colour of its state."""
    x, parts = 0.0, []
    for name, count in shares:
        if count and total:
            width = 100 * count / total
            words = f"{count:,} {name.replace('_', ' ')}"
            mark = h("title", words)
            parts.append(
                h("rect", mark, x=f"{x:.3f}", width=f"{width:.3f}", height=8, class_=f"f-{name}")
            )
            x += width
    return h(
        "svg",
        parts,
        viewbox="0 0 100 8",
        preserveAspectRatio="none",
        class_="bar",
        role="img",
        aria_label=label,
    )

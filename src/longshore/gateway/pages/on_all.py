"""Actions on all jobs that a search finds, on the page that lists jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from longshore.core.access import Right
from longshore.core.bulk_words import progress_words, refusal_lines
from longshore.core.bulks import action_words, search_words, share
from longshore.gateway.pages import parts
from longshore.gateway.pages.html import Html, h, joined
from longshore.gateway.pages.page import View
from longshore.model.bulk import BulkAction, BulkRun, BulkState

SHOWN_BULKS: Final = 10
"""Among so many bulks, the newest, the page looks for those that run."""
_WORDS: Final = {
    BulkAction.CANCEL: "Cancel",
    BulkAction.RETRY: "Retry",
    BulkAction.PRIORITY: "Set priority to …",
    BulkAction.MOVE: "Move to queue …",
    BulkAction.DELETE: "Delete",
}


def on_all_form(search: str, view: View) -> Html | None:
    """A form that counts what an action would do to all that match, and then does it."""
    if not view.may(Right.SUBMIT):
        return None
    words = [
        (action, text)
        for action, text in _WORDS.items()
        if action is not BulkAction.DELETE or view.may(Right.ADMIN)
    ]
    options = [h("option", text, value=action.value) for action, text in words]
    value = h(
        "input",
        name="value",
        aria_label="The new priority or queue",
        placeholder="priority or queue",
        autocomplete="off",
        size=16,
    )
    button = h(
        "button", "Count first", type="submit", data_method="POST", data_path="dispatcher/bulk/"
    )
    return h(
        "form",
        h("span", "All that match, on all pages:", class_="muted"),
        h("select", options, name="action", aria_label="Action on all that match"),
        value,
        button,
        class_="on-all action",
        data_query=search,
    )


def bulks_list(bulks: Sequence[BulkRun], view: View) -> Html | None:
    """The bulks that run, and the newest: how far they are."""
    shown = [one for one in bulks if one.state is BulkState.RUNNING or one is bulks[0]]
    if not shown:
        return None
    heads = ("bulk#", "action on all", "search", "progress", "began", "")
    rows = [_row(one, view) for one in shown]
    return h("div", parts.table(heads, rows, "Actions on all that match"), class_="card")


def _row(bulk: BulkRun, view: View) -> list[Html | str | None]:
    search = search_words(bulk.new.wanted)
    is_running = bulk.state is BulkState.RUNNING
    cancel = parts.action(
        "Cancel",
        "DELETE",
        f"dispatcher/bulk/{bulk.number}",
        confirm=f"Cancel bulk {bulk.number}? What it did stays done.",
        done=f"Bulk {bulk.number} is cancelled.",
        danger=True,
    )
    return [
        str(bulk.number),
        action_words(bulk.new),
        h("a", search, href=parts.jobs_url(view.root, search)),
        _progress(bulk),
        parts.when(bulk.created_at),
        cancel if is_running and view.may(Right.SUBMIT) else None,
    ]


def _progress(bulk: BulkRun) -> Html:
    words = progress_words(bulk)
    left = [h("div", line, class_="muted") for line in refusal_lines(bulk.refused)]
    if bulk.state is not BulkState.RUNNING:
        return joined(words, left)
    meter = h("progress", value=f"{share(bulk):.3f}", max="1", aria_label="Progress")
    return joined(h("span", meter, " ", words, class_="progress"), left)

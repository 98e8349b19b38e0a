"""Limits: the keys that are in use, how full each is, who holds it; and the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from msgspec import Struct, structs

from longshore.client.connection import all_of
from longshore.core.access import Right
from longshore.core.key_words import bounds_words, waited_words, waiting_words
from longshore.core.rates import rate_text
from longshore.gateway.operation import Call
from longshore.gateway.pages import parts
from longshore.gateway.pages.forms import Dialog, Field, button
from longshore.gateway.pages.html import Html, h, joined
from longshore.gateway.pages.page import Page, Regions, View
from longshore.model.limits import KeyView, LimitRule

PAGE_KEYS: Final = 25
PAGE_RULES: Final = 50


class LimitsQuery(Struct, frozen=True):
    """Which keys and which rules to list."""

    after: str = ""
    rules_after: str = ""
    show: str = ""
    """`waiting`: only keys that jobs wait for."""


class Seen(Struct, frozen=True):
    """What the page shows."""

    query: LimitsQuery
    keys: Sequence[KeyView]
    rules: Sequence[LimitRule]
    more_rules: bool


async def look(call: Call) -> Seen:
    """Asks for a page of keys, and for the rules."""
    query, limits = call.query(LimitsQuery), call.connection.limits
    only = query.show == "waiting"
    keys, rules = await all_of(
        [limits.keys(query.after, PAGE_KEYS, waited_for=only), limits.rules()]
    )
    later = [rule for rule in rules if rule.pattern > query.rules_after]
    later.sort(key=lambda rule: rule.pattern)
    # What changes by itself is left out: the page says since when, and until when.
    still = [structs.replace(one, next_s=None, full_s=None) for one in keys]
    return Seen(query, still, later[:PAGE_RULES], len(later) > PAGE_RULES)


def show(seen: Seen, view: View) -> Regions:
    """The regions of the page."""
    may = view.may(Right.ADMIN)
    heading = parts.heading("Limits", _set_rule() if may else None)
    return {
        "search": joined(heading, _chips(seen, view)),
        "list": joined(_keys(seen.keys, view), _more_keys(seen, view)),
        "rules": parts.section("Rules", _rules(seen.rules, may), _more_rules(seen, view)),
    }


def _chips(seen: Seen, view: View) -> Html:
    links = [
        h(
            "a",
            words,
            href=f"{view.root}limits/{parts.url('', show=show)}",
            aria_current="true" if seen.query.show == show else None,
        )
        for show, words in (("", "all keys"), ("waiting", "those that jobs wait for"))
    ]
    return h("nav", links, class_="chips", aria_label="Keys")


# keys


def _keys(keys: Sequence[KeyView], view: View) -> Html:
    rows = [
        [
            h("strong", one.key),
            _use(one),
            _state(one),
            _rate(one),
            _holders(one, view),
            f"the rule for {one.pattern}" if one.pattern else "what its jobs say",
        ]
        for one in keys
    ]
    heads = ("key", "in use", "now", "rate", "held by", "limited by")
    return parts.table(heads, rows, "Keys in use", empty="no job with a limit runs or waits")


def _use(one: KeyView) -> Html:
    if one.concurrency is None:
        return h("span", f"{one.held:,}")
    words = f"{one.held:,} of {one.concurrency:,} in use"
    name = "failed" if one.held >= one.concurrency else "running"
    drawn = parts.bar([(name, min(one.held, one.concurrency))], max(one.concurrency, 1), words)
    return h("div", f"{one.held:,} / {one.concurrency:,}", drawn, class_="use")


def _state(one: KeyView) -> Html | None:
    full = h("span", parts.state("full"), " ", parts.since(one.full_at)) if one.full_at else None
    waits = waiting_words(one) if one.is_waited_for else None
    waited = waited_words(one).removeprefix("; ")
    words = [h("span", each, class_="muted") for each in (waits, waited) if each]
    shown = [each for each in (full, *words) if each is not None]
    return h("div", [h("div", each) for each in shown]) if shown else None


def _rate(one: KeyView) -> Html | None:
    if one.rate is None:
        return None
    next_at = joined(", next ", parts.when(one.next_at)) if one.next_at else None
    return h("span", rate_text(one.rate), next_at)


def _holders(one: KeyView, view: View) -> Html:
    links = [
        joined(" " if at else None, parts.job_link(view.root, number))
        for at, number in enumerate(one.holders)
    ]
    more = one.held - len(one.holders)
    return h("span", links, f" and {more:,} more" if more > 0 else None)


def _more_keys(seen: Seen, view: View) -> Html:
    links, here = [], f"{view.root}limits/"
    if seen.query.after:
        links.append(h("a", "First", href=here + parts.url("", show=seen.query.show), rel="first"))
    if len(seen.keys) == PAGE_KEYS:
        more = parts.url("", show=seen.query.show, after=seen.keys[-1].key)
        links.append(h("a", "More", href=here + more, rel="next"))
    return h("nav", links, class_="paging", aria_label="More keys")


# rules


def _rules(rules: Sequence[LimitRule], may: bool) -> Html:
    rows = [
        [
            h("strong", rule.pattern),
            bounds_words(rule.concurrency, rule.rate),
            parts.when(rule.set_at),
            h("span", _change(rule), " ", _remove(rule), class_="buttons") if may else None,
        ]
        for rule in rules
    ]
    heads = ("keys", "allows", "set", " ")
    return parts.table(heads, rows, "Rules", empty="no rules: what jobs bring holds")


def _more_rules(seen: Seen, view: View) -> Html | None:
    if not seen.more_rules:
        return None
    more = parts.url("", show=seen.query.show, rules_after=seen.rules[-1].pattern)
    link = h("a", "More rules", href=f"{view.root}limits/{more}")
    return h("nav", link, class_="paging", aria_label="More rules")


def _fields(rule: LimitRule | None = None) -> list[Field]:
    most = rule.concurrency if rule else None
    rate = rule.rate if rule else None
    return [
        Field(
            name="concurrency",
            label="at once",
            kind="integer",
            value="" if most is None else str(most),
            hint="the most jobs that run at once",
        ),
        Field(
            name="rate",
            label="rate",
            value="" if rate is None else rate_text(rate),
            hint="how many begin in a time: 100/min, 5/s, 10/30s",
        ),
        Field(
            name="burst",
            label="burst",
            kind="integer",
            value="" if rate is None else str(rate.burst),
            hint="how many more than the rate may begin at once; with a rate only",
        ),
    ]


def _set_rule() -> Html:
    pattern = Field(
        name="pattern",
        label="keys",
        required=True,
        hint="a key like tenant=acme, or a pattern like tenant=*",
    )
    dialog = Dialog(
        title="Set a rule",
        words="It goes before what jobs bring, and holds at once, for jobs that wait too.",
        fields=[pattern, *_fields()],
        place="pattern",
        done="The rule is set.",
    )
    return button("Set a rule", "PUT", "dispatcher/limits/", dialog)


def _change(rule: LimitRule) -> Html:
    words = f"The rule for {rule.pattern} is replaced by this one."
    dialog = Dialog(
        title=f"Change {rule.pattern}",
        words=words,
        fields=_fields(rule),
        body="{}",
        done="The rule is changed.",
    )
    label = f"Change the rule for {rule.pattern}"
    return button("Change", "PUT", _path(rule), dialog, label=label)


def _remove(rule: LimitRule) -> Html:
    words = f"Remove the rule for {rule.pattern}? What jobs bring, or another rule, holds then."
    done = "The rule is removed."
    return parts.action("Remove", "DELETE", _path(rule), confirm=words, danger=True, done=done)


def _path(rule: LimitRule) -> str:
    return f"dispatcher/limits/{quote(rule.pattern, safe='')}"


LIMITS: Final = Page(
    path="/limits/",
    id="page_limits",
    title=lambda _: "Limits",
    look=look,
    show=show,
    query=LimitsQuery,
)

"""What limits a key, in words."""

from __future__ import annotations

from longshore.core.fairness import MOST_BEFORE
from longshore.core.key_views import MOST_COUNTED
from longshore.core.rates import rate_text
from longshore.core.timing import span
from longshore.model.fair import FairPlace
from longshore.model.limits import KeyView, Rate


def bounds_words(concurrency: int | None, rate: Rate | None, weight: float | None = None) -> str:
    """What a rule allows."""
    most = None if concurrency is None else f"at most {concurrency:,} at once"
    pace = None if rate is None else f"{rate_text(rate)} with a burst of {rate.burst:,}"
    share = None if weight is None else f"weight {weight:g}"
    return ", ".join(filter(None, (most, pace, share))) or "no limit"


def full_words(view: KeyView) -> str:
    """Why a key lets nothing more begin."""
    if view.concurrency is not None and view.held >= view.concurrency:
        since = "" if view.full_s is None else f" since {span(view.full_s)}"
        return f"{view.key} is at {view.held:,} of {view.concurrency:,}{since}{_holders(view)}"
    if view.rate is None:
        return f"{view.key} has room again"
    when = "" if view.next_s is None else f"next in {span(view.next_s)} "
    never = "" if view.next_s is not None else ", and the job takes more units than its burst"
    return f"{view.key}: {when}({rate_text(view.rate)}{never})"


def fair_words(place: FairPlace) -> str:
    """Where a job stands among those of its fair key."""
    if place.is_new:
        return f"fair: a dispatcher is about to give it a turn among the jobs of {place.key}"
    least = " or more" if place.before >= MOST_BEFORE else ""
    noun = "job" if place.before == 1 else "jobs"
    before = f"{place.before:,}{least} {noun}" if place.before else "no job"
    return f"fair: {place.key} has {before} before this one, at weight {place.weight:g}"


def key_words(view: KeyView) -> str:
    """All that there is to say of a key."""
    whose = f" by the rule for {view.pattern}" if view.pattern else ", as its jobs say"
    limit = bounds_words(view.concurrency, view.rate)
    said = f"{view.key}: {limit}{whose if limit != 'no limit' else ''}"
    running = f"{view.held:,} running{_holders(view)}"
    return f"{said}; {running}; {waiting_words(view)}{waited_words(view)}"


def waiting_words(view: KeyView) -> str:
    """How many jobs wait for a key, and for how long they have."""
    if not view.is_waited_for:
        return "no job waits for it"
    most = " or more" if view.waiting >= MOST_COUNTED else ""
    jobs = "1 job waits" if view.waiting == 1 else f"{view.waiting:,}{most} jobs wait"
    return f"{jobs} for it, {span(view.waiting_s)} so far"


def waited_words(view: KeyView) -> str:
    """How long jobs waited that do so no more; empty if none did."""
    if not view.stays:
        return ""
    times = "once" if view.stays == 1 else f"{view.stays:,} times"
    return f"; others waited {span(view.waited_s)} for it, {times}"


def _holders(view: KeyView) -> str:
    if not view.holders:
        return ""
    more = ", …" if view.held > len(view.holders) else ""
    noun = "job" if view.held == 1 else "jobs"
    return f", held by {noun} {', '.join(map(str, view.holders))}{more}"

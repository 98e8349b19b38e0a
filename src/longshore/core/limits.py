"""What a submission may hold. The client checks it early, the dispatcher checks it again."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime
from functools import lru_cache
from math import isnan
from typing import Final, TypeGuard, assert_never

from longshore.core.callback_limits import check_callback
from longshore.core.crowd_limits import check_crowd
from longshore.core.fairness import why_not_fair
from longshore.core.key_limits import why_not
from longshore.core.resources import amounts_of, shape_of, split
from longshore.core.tracing import is_traceparent
from longshore.errors import InvalidInput
from longshore.model.job import ANY_TARGET, DEFAULT_QUEUE, Options, RetryPolicy, Submission
from longshore.model.program import FREE_KINDS
from longshore.model.watcher import ActorWatcher, CallbackWatcher, ScheduleWatcher, Watcher

MAX_REQUEST_JOBS: Final = 1_000
"""How many jobs one request may name. A client sends a longer list in several requests."""
MAX_DRAINED: Final = 100
"""How many workers one request may name."""
MAX_LISTED: Final = 10_000
MAX_SEARCHED_ARGS: Final = 8
MAX_SEARCHED_CHARS: Final = 500
MAX_SEARCH_CHARS: Final = 5_000
"""How many jobs one request may list."""
MAX_NAME_CHARS: Final = 200
RESERVED_PREFIX: Final = "longshore."
"""No kind, queue, target or label of a user may begin with this."""
MAX_LABELS: Final = 20
MAX_LABEL_CHARS: Final = 100
MAX_UNIQUE_KEY_CHARS: Final = 500
MAX_KEY_CHARS: Final = 500
"""How many characters the key of an actor may have."""
MAX_ABOUT_BYTES: Final = 64 * 1024
MAX_WATCHERS: Final = 10
"""How many watchers a job or a group may have."""
MAX_FINGERPRINT_CHARS: Final = 64
MIN_PRIORITY: Final = -(2**15)
MAX_PRIORITY: Final = 2**15 - 1
MAX_ATTEMPTS: Final = 1_000_000
MAX_BACKOFF_FACTOR: Final = 1_000.0
MAX_DURATION_S: Final = 100 * 366 * 24 * 3600.0
MAX_SNOOZE_S: Final = 366 * 24 * 3600.0
"""The longest delay that a job may ask for itself."""

_NAME: Final = re.compile(r"[\w.:/@+-]+")
_DEFAULT_OPTIONS: Final = Options()
_DEFAULT_RETRY: Final = RetryPolicy()


def check_submission(job: Submission, built_in: Collection[str] = ()) -> None:
    """Raises `InvalidInput`, naming the job's kind and the field, if a field is out of bounds.

    Of kinds that users may not have, it takes those that are `built_in`.
    """
    try:
        if job.kind not in built_in and job.kind not in FREE_KINDS:
            _check_own_name("kind", job.kind)
        _check_shared(job)
    except InvalidInput as error:
        raise _of_job(job, error) from None
    check_own_fields(job)


def check_own_fields(job: Submission) -> None:
    """Checks what a job has not in common with others that it `is_like`, as `check_submission`."""
    if job.unique_key is None and job.delay_s is None and job.run_at is None:
        return
    try:
        if job.unique_key is not None:
            check_text("unique_key", job.unique_key, MAX_UNIQUE_KEY_CHARS)
        _check_times(job)
    except InvalidInput as error:
        raise _of_job(job, error) from None


def _of_job(job: Submission, error: InvalidInput) -> InvalidInput:
    return InvalidInput(f"job '{job.kind!s:.{MAX_NAME_CHARS}}': {error}")


def _check_shared(job: Submission) -> None:
    if job.queue != DEFAULT_QUEUE:
        _check_own_name("queue", job.queue)
    if job.target != ANY_TARGET or job.options.resources:
        check_target(job.target, job.options.resources)
    if job.options.limits or job.options.debounce is not None:
        check_crowd(job)
    if job.priority != 0:
        check_priority(job.priority)
    if job.options != _DEFAULT_OPTIONS:
        check_options(job.options)
        if job.options.watchers and job.unique_key is not None:
            raise InvalidInput(
                "it has watchers and a unique key; the job that has the key already would have "
                "none of them: leave one of the two out"
            )


def _check_times(job: Submission) -> None:
    if job.delay_s is not None:
        _number("delay_s", job.delay_s, 0, MAX_DURATION_S)
        if job.run_at is not None:
            raise InvalidInput("delay_s and run_at are both given; give one of them")
    if job.run_at is not None and not _has_utc(job.run_at):
        raise InvalidInput(
            f"run_at {job.run_at.isoformat()} is outside of the years 1 to 9999 in UTC; give "
            "another time"
        )
    if job.run_at is not None and job.run_at.utcoffset() is None:
        raise InvalidInput(
            f"run_at {job.run_at.isoformat()} has no time zone; give an aware datetime, like "
            "datetime.now(UTC) + timedelta(hours=1)"
        )


def _has_utc(moment: datetime) -> bool:
    """Whether a time can be told in UTC, as the wire and the stores do."""
    try:
        return moment.utcoffset() is None or bool(moment.astimezone(UTC))
    except OverflowError:
        return False


def check_timeout(what: str, seconds: object) -> None:
    """Raises `InvalidInput` unless this is a time to wait: any float but NaN, or None."""
    if seconds is not None and not (_is_number(seconds) and _is_float(seconds)):
        raise InvalidInput(f"{what} is {seconds!r}; give seconds, or None to wait for ever")


def check_options(options: Options) -> None:
    """Raises `InvalidInput` naming the field if a job's options are out of bounds."""
    _check_limit("timeout_s", options.timeout_s)
    _check_limit("expires_s", options.expires_s)
    if options.raw and options.references:
        raise InvalidInput("a raw job takes bytes as they are: it cannot refer to results")
    if options.turn:
        raise InvalidInput("turn is set; only the store makes turns of actors: start an actor")
    if options.reads:
        raise InvalidInput("reads is set; only a dispatcher makes such jobs: read an actor")
    if options.traceparent and not is_traceparent(options.traceparent):
        raise InvalidInput(
            f"traceparent is {options.traceparent!r:.100}; give a W3C trace context, like "
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01, or none"
        )
    if options.by:
        raise InvalidInput("by is set; only a dispatcher says who submits: leave it out")
    if options.scheduled is not None:
        raise InvalidInput("scheduled is set; only a dispatcher says which schedule submits")
    if options.batch:
        check_text("batch", options.batch, MAX_FINGERPRINT_CHARS)
    if options.labels:
        check_labels(options.labels)
    if options.watchers:
        check_watchers(options.watchers)
    if options.limits and (why := why_not(options.limits)):
        raise InvalidInput(why)
    if options.fair and (why := why_not_fair(options.fair)):
        raise InvalidInput(why)
    if options.retry != _DEFAULT_RETRY:
        check_retry(options.retry)


def check_watchers(watchers: tuple[Watcher, ...]) -> None:
    """Raises `InvalidInput` unless a job or a group may have these watchers."""
    if len(watchers) > MAX_WATCHERS:
        raise InvalidInput(
            f"{len(watchers)} watchers are more than the {MAX_WATCHERS} there may be"
        )
    for watcher in watchers:
        match watcher:
            case ActorWatcher():
                _check_actor_watcher(watcher)
            case CallbackWatcher():
                check_callback(watcher)
            case ScheduleWatcher():
                raise InvalidInput("a schedule watches what it submits, and nothing else")
            case _:
                assert_never(watcher)


def _check_actor_watcher(watcher: ActorWatcher) -> None:
    check_name("the type of an actor that watches", watcher.type)
    check_text("the key of an actor that watches", watcher.key, MAX_KEY_CHARS)
    if not watcher.name.isidentifier():
        raise InvalidInput(f"an outcome is handled by {watcher.name!r}; give the name of a handler")
    check_length("the name of a handler", watcher.name, MAX_NAME_CHARS)
    if len(watcher.about) > MAX_ABOUT_BYTES:
        raise InvalidInput(f"about takes more than {MAX_ABOUT_BYTES:,} bytes; keep it short")


def _check_limit(name: str, seconds: float | None) -> None:
    if seconds is not None:
        _number(name, seconds, 0, MAX_DURATION_S)
        if seconds == 0:
            raise InvalidInput(f"{name} is 0; it must be more, or None for no limit")


def check_labels(labels: tuple[str, ...]) -> None:
    """Raises `InvalidInput` unless a job or a group may have these labels."""
    if len(labels) > MAX_LABELS:
        raise InvalidInput(f"{len(labels)} labels are more than the {MAX_LABELS} there may be")
    for label in labels:
        check_text("label", label, MAX_LABEL_CHARS)
        _check_prefix("label", label)


def check_retry(retry: RetryPolicy) -> None:
    """Raises `InvalidInput` naming the field if a retry policy is out of bounds."""
    if not _is_whole(retry.attempts) or not 1 <= retry.attempts <= MAX_ATTEMPTS:
        raise InvalidInput(
            f"retries is {_less_one(retry.attempts)!r}; it must be a whole number from 0 to "
            f"{MAX_ATTEMPTS - 1:,} (0 is one attempt and no retry)"
        )
    _number("backoff_s", retry.backoff_s, 0, MAX_DURATION_S)
    _number("backoff_factor", retry.factor, 1, MAX_BACKOFF_FACTOR)
    _number("max_backoff_s", retry.max_backoff_s, 0, MAX_DURATION_S)
    _number("jitter", retry.jitter, 0, 1)


def _less_one(attempts: object) -> object:
    return attempts - 1 if isinstance(attempts, int) else attempts


@lru_cache(maxsize=4_096)
def check_name(what: str, name: object) -> None:
    """Raises `InvalidInput` unless this can name a kind, queue or target."""
    if not isinstance(name, str):
        raise InvalidInput(f"{what} is {name!r}; it must be text")
    if not name:
        raise InvalidInput(f"{what} is empty; give it a name")
    check_length(what, name, MAX_NAME_CHARS)
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{what} {name!r} has a character that names may not have; letters, digits and "
            "_ . : / @ + - are allowed"
        )


@lru_cache(maxsize=4_096)
def check_target(target: object, resources: str) -> None:
    """Raises `InvalidInput` unless this is the target of a job that takes these resources."""
    if not isinstance(target, str):
        raise InvalidInput(f"target is {target!r}; it must be text")
    name, shape = split(target)
    if name:
        _check_own_name("target", name)
    if shape != resources:
        raise InvalidInput(
            f"target {target!r:.100} does not end with what it takes, {resources!r:.100}; give "
            "resources, and only the machine's name as target"
        )
    if shape and shape != shape_of(amounts_of(shape)):
        raise InvalidInput(
            f"resources {shape!r:.100} are not as Longshore writes them: "
            f"{shape_of(amounts_of(shape))!r}"
        )


@lru_cache(maxsize=4_096)
def _check_own_name(what: str, name: object) -> None:
    """Raises `InvalidInput` unless a user may give this name to a kind, queue or target."""
    check_name(what, name)
    _check_prefix(what, str(name))


def _check_prefix(what: str, name: str) -> None:
    if name.startswith(RESERVED_PREFIX):
        raise InvalidInput(
            f"{what} {name!r} begins with '{RESERVED_PREFIX}', which is reserved for Longshore "
            "itself; choose another name"
        )


def check_text(what: str, text: object, most: int) -> None:
    """Raises `InvalidInput` unless this is printable text of at most so many characters."""
    if not isinstance(text, str) or not text:
        raise InvalidInput(f"{what} is {text!r}; it must be text, and not empty")
    check_length(what, text, most)
    if not text.isprintable():
        raise InvalidInput(f"{what} {text!r} has a character that cannot be printed; leave it out")


def check_length(what: str, text: str, most: int) -> None:
    """Raises `InvalidInput` if a text has more than `most` characters."""
    if len(text) > most:
        raise InvalidInput(f"{what} has {len(text):,} characters; {most:,} are allowed")


def _is_whole(number: object) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool)


def _is_number(number: object) -> TypeGuard[int | float]:
    return isinstance(number, int | float) and not isinstance(number, bool)


def _is_float(number: float) -> bool:
    try:
        return not isnan(number)
    except OverflowError:
        return False


def check_priority(priority: object) -> None:
    """Raises `InvalidInput` unless a job may have this priority."""
    if not _is_whole(priority) or not MIN_PRIORITY <= priority <= MAX_PRIORITY:
        raise InvalidInput(
            f"priority is {priority!r}; it must be a whole number from {MIN_PRIORITY:,} to "
            f"{MAX_PRIORITY:,}"
        )


def _number(what: str, number: object, least: float, most: float) -> None:
    # This refuses NaN, which lies between no two numbers, and whole numbers no float can hold.
    if not _is_number(number) or not least <= number <= most:
        raise InvalidInput(
            f"{what} is {number!r}; it must be a number from {least:,.0f} to {most:,.0f}"
        )

"""A schedule as a file, the body of a request or a command line describes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from longshore.client.described import described
from longshore.client.kind import Terms
from longshore.core.schedule_limits import check_schedule
from longshore.errors import InvalidInput
from longshore.model.group import GroupPart
from longshore.model.job import Submission
from longshore.model.schedule import Catchup, NewSchedule, Overlap, Rules, Spec, Timing
from longshore.payload.values import pack


class ScheduleDocument(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A schedule. It has `cron`, `every_s` or `specs`, and submits a `job` or a `group`.

    A job has its `kind`, its `args` and the options of a submit; a group is as in a group file.
    """

    name: str
    cron: str | list[str] = []
    every_s: float = 0.0
    specs: list[Spec] = []
    tz: str = "UTC"
    exclude: list[str] = []
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    jitter_s: float = 0.0
    overlap: Overlap = Overlap.SKIP
    catchup: Catchup = Catchup.LATEST
    window_s: float = 86_400.0
    count: int = 100
    grace_s: float = 60.0
    pause_after: int = 0
    job: dict[str, Any] | None = None
    group: dict[str, Any] | None = None

    def kinds(self) -> list[str]:
        """The kinds of what it submits."""
        if self.job is not None:
            return [str(self.job.get("kind", ""))]
        return [] if self.group is None else _group_file(self.group).kinds

    def new(self, new_id: Callable[[], UUID], terms: Mapping[str, Terms]) -> NewSchedule:
        """The schedule; of kinds without terms the defaults hold. Raises if it cannot be."""
        try:
            job = None if self.job is None else _job(self.job, new_id, terms)
            group = None if self.group is None else _group(self.group, new_id, terms)
        except InvalidInput as error:
            raise InvalidInput(f"schedule '{self.name}': {error}") from None
        made = NewSchedule(new_id(), self.name, self.timing(), self.rules(), job, group)
        check_schedule(made)
        return made

    def timing(self) -> Timing:
        """Its times."""
        crons = [self.cron] if isinstance(self.cron, str) else self.cron
        specs = [Spec(cron=one, tz=self.tz) for one in crons if one]
        specs += [Spec(every_s=self.every_s, tz=self.tz)] * bool(self.every_s) + self.specs
        exclude, bounds = tuple(self.exclude), (self.starts_at, self.ends_at)
        return Timing(tuple(specs), exclude, *bounds, self.jitter_s)

    def rules(self) -> Rules:
        """What it does with its times."""
        amounts = (self.window_s, self.count, self.grace_s, self.pause_after)
        return Rules(self.overlap, self.catchup, *amounts)


def _job(
    given: Mapping[str, Any], new_id: Callable[[], UUID], terms: Mapping[str, Terms]
) -> Submission:
    fields = dict(given)
    kind, args = fields.pop("kind", None), fields.pop("args", {})
    if not isinstance(kind, str) or not kind:
        raise InvalidInput("its job has no `kind`")
    if not isinstance(args, dict):
        raise InvalidInput("the `args` of its job are no object of names and values")
    packed = pack(args, f"the arguments of job '{kind}'")
    options = {name: described(name, value) for name, value in fields.items()}
    return terms.get(kind, Terms()).but(**options).submission(new_id(), kind, packed)


def _group_file(given: Mapping[str, Any]) -> Any:
    from longshore.client.group_file import group_in_body  # it imports YAML, which takes a while

    return group_in_body(given)


def _group(
    given: Mapping[str, Any], new_id: Callable[[], UUID], terms: Mapping[str, Terms]
) -> GroupPart:
    head, nodes = _group_file(given).in_order(new_id, terms)
    return GroupPart(head, 0, tuple(nodes))


def as_document(given: object, where: str) -> ScheduleDocument:
    """The schedule that plain values describe; raises `InvalidInput` and says where."""
    try:
        return msgspec.convert(given, ScheduleDocument)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{where}: {error}") from None


def _plain(value: object) -> object:
    """What YAML reads as a day or a time is a text again, or a time with its zone."""
    match value:
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case datetime():
            return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        case date():
            return value.isoformat()
    return value


def read_schedules(file: str, data: bytes) -> Iterator[ScheduleDocument]:
    """The schedules in a YAML or JSON file: under `schedules`, by name."""
    import yaml

    try:
        found = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{file} is no YAML: {error}") from None
    listed = found.get("schedules") if isinstance(found, dict) else None
    if not isinstance(listed, dict) or set(found) != {"schedules"}:
        raise InvalidInput(f"{file} has to have `schedules`, by name, and nothing else")
    for name, fields in listed.items():
        if not isinstance(fields, dict):
            raise InvalidInput(f"{file}: schedule '{name}' has no fields")
        yield as_document(_plain({"name": str(name), **fields}), f"{file}: schedule '{name}'")


def seconds_of(given: float | timedelta) -> float:
    """The seconds of a duration."""
    return given.total_seconds() if isinstance(given, timedelta) else float(given)

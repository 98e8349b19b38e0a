"""Groups in files and bodies of requests: what they may hold, and the group they describe.

A file is YAML or JSON (`read_group`). A body is JSON (`group_in_body`), or has a line of JSON for
the group and one for each job (`group_in_lines`). The words in them are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from longshore.client.described import described, described_limits
from longshore.client.group_plan import GroupPlan
from longshore.client.kind import SubmitOptions, Terms
from longshore.client.limit import Limit
from longshore.client.located import Entry, at, read
from longshore.client.pairs import split, value_of
from longshore.core.callback_limits import as_callback
from longshore.core.keys import Keys
from longshore.core.limits import check_name, check_submission
from longshore.errors import InvalidInput, LongshoreError, from_code
from longshore.model.group import GATE, MAP, Condition, Group, GroupHead, Node
from longshore.model.job import Options, Submission
from longshore.model.program import COMMAND_KIND, CONTAINER_KIND
from longshore.model.run_time import RunTime
from longshore.model.watcher import CallbackWatcher
from longshore.payload.described_programs import check_program_fields, without_results
from longshore.payload.maps import MapPattern, check_map, pack_map
from longshore.payload.references import RESULT, RESULTS, escaped, references, references_in
from longshore.payload.values import pack

BODY: Final = "the body"
"""How errors call the body of a request."""
_FIELDS: Final = ("name", "fail_fast", "labels", "callback", "limit", "jobs")
_OPTIONS: Final = tuple(sorted(SubmitOptions.__annotations__.keys() - {"id", "run_at", "callback"}))
_PROGRAMS: Final = {"command": COMMAND_KIND, "container": CONTAINER_KIND}
"""What stands for `kind` and `args` if the job is a program."""
_JOB_FIELDS: Final = (
    *("key", "kind", "args", "command", "container", "after", "on", "map", "gate"),
    *_OPTIONS,
)
_GATE_FIELDS: Final = ("key", "gate", "after", "on", "timeout_s")
_MAP_FIELDS: Final = ("over", "parameter")
_OF_JOB: Final = re.compile("job '([^']*)': ")
_PARAMETER: Final = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
_PARAMETER_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class FileJob(Struct, frozen=True):
    """A job as a file describes it."""

    kind: str
    args: bytes
    after: tuple[str, ...]
    on: str
    key: str | None
    options: dict[str, Any]
    line: int
    references: bool
    """Whether its arguments have results of other jobs in them."""
    over: FileMap | None = None

    def submission(self, new_id: Callable[[], UUID], terms: Terms) -> Submission:
        """The job, or the map of such jobs, that it describes."""
        if self.kind == GATE:
            options = Options(expires_s=self.options.get("timeout_s"))
            job = Submission(new_id(), GATE, self.args, options=options)
            check_submission(job, built_in={GATE})
            return job
        chosen = terms.but(**self.options)
        of_job, over = (new_id(), self.kind, self.args), self.over
        if over is None:
            return chosen.submission(*of_job, references=self.references)
        job = chosen.pattern(*of_job, over.parameter, references=self.references)
        return over.submission(new_id(), job)


class FileMap(Struct, frozen=True):
    """What a map goes over, as a file describes it."""

    over: Any
    parameter: str

    def submission(self, id: UUID, job: Submission) -> Submission:
        """The map of jobs like this one."""
        args = pack_map(self.over, MapPattern(self.parameter, job))
        options = Options(references=any(references_in(self.over)))
        whole = Submission(id, MAP, args, options=options)
        check_map(whole)
        return whole


class GroupFile(Struct, frozen=True):
    """A group as a file describes it."""

    file: str
    name: str
    fail_fast: bool
    labels: tuple[str, ...]
    jobs: tuple[FileJob, ...]
    callback: CallbackWatcher | None = None
    limit: Limit | None = None

    @property
    def kinds(self) -> list[str]:
        """The kinds of its jobs, each once."""
        return list(dict.fromkeys(job.kind for job in self.jobs if job.kind != GATE))

    def in_order(
        self,
        new_id: Callable[[], UUID],
        terms: Mapping[str, Terms],
        times: Mapping[str, RunTime] | None = None,
    ) -> tuple[GroupHead, list[Node]]:
        """The group to submit; of kinds without terms the defaults hold. Raises if it cannot run.

        What the file says of a job replaces what its app declared.
        """
        plan = GroupPlan(
            new_id(),
            self.name,
            fail_fast=self.fail_fast,
            labels=self.labels,
            callback=self.callback,
            limit=self.limit,
        )
        lines: dict[str, int] = {}
        for job in self.jobs:
            with _at(self.file, job.line):
                submission = job.submission(new_id, terms.get(job.kind, Terms()))
                key = plan.add(submission, job.after, job.on, job.key)
            lines[key] = job.line
        try:
            return plan.in_order(times)
        except InvalidInput as error:
            # Such an error names first the job that it is about.
            named = [key for key in re.findall("'([^']*)'", str(error)) if key in lines]
            raise at(self.file, lines[named[0]] if named else 1, str(error)) from None

    def located(self, error: LongshoreError) -> LongshoreError:
        """What a dispatcher says is wrong with a job of this file, with the line of that job."""
        named = _OF_JOB.search(str(error))
        line = self._lines().get(named[1]) if named else None
        if line is None:
            return error
        return from_code(error.code, str(at(self.file, line, str(error))))

    def _lines(self) -> dict[str, int]:
        """The lines of its jobs by their keys."""
        keys, lines = Keys(), dict[str, int]()
        for job in self.jobs:
            key = keys.next_of(job.kind) if job.key is None else job.key
            keys.take(key)
            lines[key] = job.line
        return lines

    def additions(
        self,
        into: Group,
        request: UUID,
        new_id: Callable[[], UUID],
        terms: Mapping[str, Terms],
    ) -> GroupPlan:
        """The jobs of the file, to be added to a group."""
        plan = addition_plan(into, request)
        for job in self.jobs:
            with _at(self.file, job.line):
                submission = job.submission(new_id, terms.get(job.kind, Terms()))
                plan.add(submission, job.after, job.on, job.key)
        return plan


def addition_plan(into: Group, request: UUID) -> GroupPlan:
    """A description of jobs to be added to a group, without any at first."""
    return GroupPlan(into.id, into.name, ending=f"@{request.hex[-8:]}")


def read_additions(file: str, data: bytes, given: Sequence[str] = ()) -> GroupFile:
    """The jobs in a file that are to be added to a group: it has only `jobs`."""
    filled = _Parameters(file, given)
    whole = filled.fill(read(file, data))
    filled.check_used()
    return _Reader(file).additions(whole)


def described_job(fields: Mapping[str, Any]) -> GroupFile:
    """One job that is to be added to a group, by the fields that it has in a file."""
    return _Reader("group add").additions(_located({"jobs": [dict(fields)]}, 1))


def read_group(file: str, data: bytes, given: Sequence[str] = ()) -> GroupFile:
    """The group in a file, with values for its `${…}` given as KEY=VALUE.

    What is wrong is raised with the file and the line.
    """
    filled = _Parameters(file, given)
    whole = filled.fill(read(file, data))
    filled.check_used()
    return _Reader(file).whole_group(whole)


def group_in_body(document: Mapping[str, object]) -> GroupFile:
    """The group in the body of a request. What is wrong is raised with the place of the job."""
    reader = _Reader(BODY)
    head = {name: value for name, value in document.items() if name != "jobs"}
    jobs = document.get("jobs")
    if not isinstance(jobs, list):
        raise at(BODY, 0, "it has no `jobs`; list at least one")
    listed = (_Reader(f"jobs[{place}]").job(_located(job, 0)) for place, job in enumerate(jobs))
    return reader.group(_located(head, 0), listed)


def group_in_lines(lines: Iterable[tuple[int, object]]) -> GroupFile:
    """The group in numbered lines: the first describes it, each other one of its jobs."""
    reader = _Reader(BODY)
    found = (_located(value, line) for line, value in lines)
    head = next(found, None)
    if head is None:
        raise at(BODY, 0, "it is empty; its first line describes the group")
    if isinstance(head.value, dict) and "jobs" in head.value:
        raise at(BODY, head.line, "jobs have lines of their own here; leave out `jobs`")
    return reader.group(head, (reader.job(one) for one in found))


class _Parameters:
    """The values for the `${…}` of a file."""

    def __init__(self, file: str, given: Sequence[str]) -> None:
        self._file = file
        self._texts: dict[str, str] = {}
        for text in given:
            name, value = split(text)
            if name in self._texts:
                raise InvalidInput(f"-p {name} is given twice; give each parameter once")
            self._texts[name] = value
        self._seen: set[str] = set()

    def fill(self, entry: Entry) -> Entry:
        """The entry with all parameters filled in."""
        value = entry.value
        if isinstance(value, dict):
            return Entry({name: self.fill(one) for name, one in value.items()}, entry.line)
        if isinstance(value, list):
            return Entry([self.fill(one) for one in value], entry.line)
        return self._filled(value, entry.line) if _has(value) else entry

    def _filled(self, text: str, line: int) -> Entry:
        """The text with its parameters; the value itself if it is nothing but one parameter."""
        whole = _PARAMETER.fullmatch(text)
        if whole and whole[2] is not None:
            given = self._text(whole[2], line)
            return _located(value_of(whole[2], given), line)._replace(given=given)
        return Entry(_PARAMETER.sub(lambda one: one[1] or self._text(one[2], line), text), line)

    def _text(self, name: str, line: int) -> str:
        if not _PARAMETER_NAME.fullmatch(name):
            raise at(
                self._file,
                line,
                f"${{{name}}} is not a parameter: its name has letters, digits, _ and -; write "
                "$${ if the text ${ is meant",
            )
        if name not in self._texts:
            raise at(self._file, line, f"${{{name}}} has no value; give it one: -p {name}=…")
        self._seen.add(name)
        return self._texts[name]

    def check_used(self) -> None:
        """Raises if a value was given for which the file has no place."""
        unused = [name for name in self._texts if name not in self._seen]
        if unused:
            has = ", ".join(sorted(self._seen)) or "none"
            raise InvalidInput(
                f"-p {unused[0]}: {self._file} has no ${{{unused[0]}}}; its parameters: {has}"
            )


def _located(value: object, line: int) -> Entry:
    """A value from the command line as an entry of the file."""
    if isinstance(value, dict):
        return Entry({name: _located(one, line) for name, one in value.items()}, line)
    if isinstance(value, list):
        return Entry([_located(one, line) for one in value], line)
    return Entry(value, line)


def _has(value: object) -> bool:
    return isinstance(value, str) and "${" in value


class _Reader:
    """Reads what entries mean."""

    def __init__(self, file: str) -> None:
        self._file = file

    def whole_group(self, whole: Entry) -> GroupFile:
        """The group that the whole file describes."""
        jobs = self._fields(whole, "a group", _FIELDS).get("jobs")
        if jobs is None:
            raise at(self._file, whole.line, "it has no `jobs`; list at least one")
        return self.group(whole, (self.job(one) for one in self._list(jobs, "jobs")))

    def group(self, whole: Entry, jobs: Iterable[FileJob]) -> GroupFile:
        """The group of these jobs, whose name and so on are in `whole`."""
        fields = self._fields(whole, "a group", _FIELDS)
        return GroupFile(
            self._file,
            self._text(fields, "name", whole),
            self._flag(fields.get("fail_fast"), "fail_fast"),
            tuple(self._texts(fields.get("labels"), "labels")),
            tuple(jobs),
            self._callback(fields.get("callback")),
            self._limit(fields.get("limit")),
        )

    def _limit(self, entry: Entry | None) -> Limit | None:
        """The limit of the whole group."""
        if entry is None or entry.value is None:
            return None
        with _at(self._file, entry.line):
            found = described_limits(_plain(entry))
            if len(found) != 1:
                raise InvalidInput("a group has one limit; give one number or one map")
            found[0].of_group()  # which raises if it has a key
        return found[0]

    def _callback(self, entry: Entry | None) -> CallbackWatcher | None:
        if entry is None:
            return None
        with _at(self._file, entry.line):
            return as_callback(_plain(entry))

    def additions(self, whole: Entry) -> GroupFile:
        """Jobs that are to be added to a group."""
        fields = self._fields(whole, "what is added to a group", ("jobs",))
        if "jobs" not in fields:
            raise at(self._file, whole.line, "it has no `jobs`; list at least one")
        jobs = tuple(self.job(one) for one in self._list(fields["jobs"], "jobs"))
        return GroupFile(self._file, "", False, (), jobs)

    def _gate(self, entry: Entry, fields: Mapping[str, Entry]) -> FileJob:
        self._fields(entry, "a gate", _GATE_FIELDS)
        on, timeout = fields.get("on"), fields.get("timeout_s")
        return FileJob(
            GATE,
            pack({}, "a gate"),
            tuple(self._texts(fields.get("after"), "after")),
            Condition.SUCCEEDED.value if on is None else self._as_text(on, "on"),
            self._text(fields, "key", entry),
            {} if timeout is None else {"timeout_s": _plain(timeout)},
            entry.line,
            False,
        )

    def _map(self, entry: Entry) -> FileMap:
        """What a map goes over, and the parameter for its elements."""
        fields = self._fields(entry, "a map", _MAP_FIELDS)
        if "over" not in fields:
            raise at(self._file, entry.line, "`over` is missing; give a list, or a result")
        over = fields["over"]
        value = _plain(over)
        with _at(self._file, over.line):
            found = list(references_in(value))
        if not found and not isinstance(value, list):
            words = "over is a list, {$result: {job: KEY}} or {$results: {map: KEY}}"
            raise at(self._file, over.line, words)
        whole = value if _refers(value) else escaped(value)
        return FileMap(whole, self._text(fields, "parameter", entry))

    def job(self, entry: Entry) -> FileJob:
        """The job that an entry describes."""
        fields = self._fields(entry, "a job", _JOB_FIELDS)
        if "gate" in fields and self._flag(fields["gate"], "gate"):
            return self._gate(entry, fields)
        kind, args = self._program(fields) or self._kind(entry, fields)
        on = fields.get("on")
        options = {name: self._option(name, fields[name]) for name in _OPTIONS if name in fields}
        values = {} if args is None else _plain(args)
        with _at(self._file, entry.line if args is None else args.line):
            packed = pack(values, f"the arguments of job '{kind}'")
            refers = _refers(values)
            if refers:
                references(packed)  # which raises if one is malformed
        elements = self._map(fields["map"]) if "map" in fields else None
        if elements is not None and elements.parameter in values:
            words = f"the map gives each element to '{elements.parameter}'; leave it out of args"
            raise at(self._file, fields["map"].line, words)
        return FileJob(
            kind,
            packed,
            tuple(self._texts(fields.get("after"), "after")),
            Condition.SUCCEEDED.value if on is None else self._as_text(on, "on"),
            self._text(fields, "key", entry) if "key" in fields else None,
            options,
            entry.line,
            refers,
            elements,
        )

    def _option(self, name: str, entry: Entry) -> object:
        with _at(self._file, entry.line):
            return described(name, _plain(entry))

    def _kind(self, entry: Entry, fields: Mapping[str, Entry]) -> tuple[str, Entry | None]:
        """The kind of a job and its arguments."""
        kind, args = self._text(fields, "kind", entry), fields.get("args")
        with _at(self._file, fields["kind"].line):
            check_name("kind", kind)
        if args is not None and not isinstance(args.value, dict):
            raise at(self._file, args.line, "args are given by name, like {url: …}")
        return kind, args

    def _program(self, fields: Mapping[str, Entry]) -> tuple[str, Entry] | None:
        """The kind of a job that is a program, and its fields; None if it is none."""
        found = [name for name in _PROGRAMS if name in fields]
        if not found:
            return None
        entry, others = fields[found[0]], {"kind", "args", *_PROGRAMS} & {*fields}
        if len(others) > 1:
            words = f"a job has either `kind` or `{found[0]}`, not {' and '.join(sorted(others))}"
            raise at(self._file, entry.line, words)
        if found[0] == "command" and isinstance(entry.value, list):
            entry = Entry({"argv": entry}, entry.line)
        with _at(self._file, entry.line):
            check_program_fields(_PROGRAMS[found[0]], without_results(_plain(entry)))
        return _PROGRAMS[found[0]], entry

    def _fields(self, entry: Entry, what: str, known: Sequence[str]) -> dict[str, Entry]:
        if not isinstance(entry.value, dict):
            raise at(self._file, entry.line, f"{what} has names and values, like `kind: fetch`")
        for name, one in entry.value.items():
            if name not in known:
                near = get_close_matches(name, known, n=1)
                advice = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
                raise at(self._file, one.line, f"{what} has no '{name:.200}'; {advice}")
        return entry.value

    def _text(self, fields: Mapping[str, Entry], name: str, whole: Entry) -> str:
        entry = fields.get(name)
        if entry is None:
            raise at(self._file, whole.line, f"`{name}` is missing; give it")
        return self._as_text(entry, name)

    def _as_text(self, entry: Entry, name: str) -> str:
        if isinstance(entry.value, str):
            return entry.value
        if entry.given is not None:
            return entry.given
        shown = _plain(entry)
        raise at(self._file, entry.line, f"{name} is {shown!r}; it must be text: quote it")

    def _flag(self, entry: Entry | None, name: str) -> bool:
        if entry is None:
            return False
        if not isinstance(entry.value, bool):
            raise at(self._file, entry.line, f"{name} is true or false")
        return entry.value

    def _texts(self, entry: Entry | None, what: str) -> Iterator[str]:
        """The texts of a list, or one text alone."""
        if entry is None:
            return
        is_given = entry.given is not None and not isinstance(entry.value, list)
        is_one = isinstance(entry.value, str) or is_given
        found = [entry] if is_one else self._list(entry, what)
        for one in found:
            yield self._as_text(one, f"an entry of {what}")

    def _list(self, entry: Entry, what: str) -> list[Entry]:
        if not isinstance(entry.value, list):
            raise at(self._file, entry.line, f"{what} must be a list")
        return entry.value


def _refers(value: object) -> bool:
    """Whether arguments have a reference to a result in them, or a key that is written `$$…`."""
    if isinstance(value, dict):
        marked = any(key in (RESULT, RESULTS) or key.startswith("$$") for key in value)
        return marked or any(map(_refers, value.values()))
    return isinstance(value, list) and any(map(_refers, value))


def _plain(entry: Entry) -> Any:
    """The value of an entry without its lines."""
    value = entry.value
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


@contextmanager
def _at(file: str, line: int) -> Iterator[None]:
    """What is raised inside names the file and the line."""
    try:
        yield
    except LongshoreError as error:
        raise from_code(error.code, str(at(file, line, str(error)))) from None

"""`Kind`: a function, and the terms on which its jobs are submitted. `Call`: one such job."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack
from uuid import UUID

from msgspec import UNSET, Struct, structs

from longshore.client.clients import Clients, blocking
from longshore.client.debounce import Debounce
from longshore.client.fair import fair_by_given, fair_key_of, fair_key_of_elements
from longshore.client.handle import Handle
from longshore.client.handler import FunctionHandler
from longshore.client.limit import KeyGiven, Limit, limits_given, limits_of
from longshore.client.results import to_builtin_arguments
from longshore.client.tracing import sending
from longshore.core.callback_limits import as_callback
from longshore.core.crowd_limits import why_not_debounced, why_not_full
from longshore.core.key_limits import BY_FUNCTION, why_not, with_some_values
from longshore.core.limits import check_submission
from longshore.core.resources import checked, parse, shape_of, split, with_shape
from longshore.errors import AppError, InvalidInput, NotSerialisable, from_code
from longshore.model.group import MAP
from longshore.model.history import HistoryJob
from longshore.model.job import ANY_TARGET, DEFAULT_QUEUE, Job, Options, RetryPolicy, Submission
from longshore.model.limits import JobLimit
from longshore.model.watcher import CallbackWatcher
from longshore.model.worker import KindInfo, KindTerms
from longshore.payload.maps import MapPattern, check_map, pack_map
from longshore.payload.references import escaped, refuse_outside_a_group
from longshore.payload.result_reference import ResultReference
from longshore.payload.values import pack
from longshore.wire.messages import SubmitAnswer

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
C = TypeVar("C", covariant=True)


CallbackGiven = str | Mapping[str, object] | CallbackWatcher
"""A URL, or a map with `url`, or with `hostname`, `port` and `path`; and `method`, `headers`."""


ResourcesGiven = str | Mapping[str, float | str]
"""What a job takes of its worker: {"cpu": 2, "memory": "4g", "gpu": 1}, or that as a text."""


class SubmitOptions(TypedDict, total=False):
    """The options of a submit, beside its arguments."""

    delay_s: float | None
    run_at: datetime | None
    priority: int
    unique_key: str | None
    labels: Sequence[str]
    id: UUID | None
    queue: str
    target: str
    timeout_s: float | None
    expires_s: float | None
    retries: int
    backoff_s: float
    backoff_factor: float
    max_backoff_s: float
    jitter: float
    callback: CallbackGiven | None
    resources: ResourcesGiven
    limit: Limit | Sequence[Limit] | None
    debounce: Debounce | None
    fair_by: KeyGiven | None


class Terms(Struct, frozen=True, kw_only=True):
    """Everything about a job beside its kind and its arguments."""

    queue: str = DEFAULT_QUEUE
    target: str = ANY_TARGET
    priority: int = 0
    timeout_s: float | None = None
    retry: RetryPolicy = RetryPolicy()
    expires_s: float | None = None
    resources: str = ""
    delay_s: float | None = None
    run_at: datetime | None = None
    unique_key: str | None = None
    labels: tuple[str, ...] = ()
    id: UUID | None = None
    callback: CallbackWatcher | None = None
    limit: tuple[Limit, ...] = ()
    debounce: Debounce | None = None
    fair_by: KeyGiven | None = None

    def but(self, **changes: object) -> Terms:
        """A copy with these changes; retries and backoff change the retry policy."""
        _refuse_unknown(changes, _DECLARED)
        given = {name: value for name, value in changes.items() if value is not UNSET}
        given |= {name: _as_float(given[name]) for name in _SECONDS if name in given}
        policy = {
            field: _as_float(given.pop(name))
            for name, field in _POLICY_FIELDS.items()
            if name in given
        }
        if "retries" in given:
            policy["attempts"] = _attempts(given.pop("retries"))
        if "labels" in given:
            given["labels"] = _labels(given["labels"])
        if given.get("callback") is not None:
            given["callback"] = as_callback(given["callback"])
        if "resources" in given:
            given["resources"] = _shape(given["resources"])
        if "limit" in given:
            given["limit"] = limits_given(given["limit"])
        if "fair_by" in given:
            given["fair_by"] = fair_by_given(given["fair_by"])
        _check_type(given, "id", UUID, "a uuid.UUID, like uuid.uuid4(), or leave it out")
        _check_type(given, "debounce", Debounce, "Debounce(wait_s=5, key='doc'), or None")
        later = "datetime.now(UTC) + timedelta(hours=1)"
        _check_type(given, "run_at", datetime, f"an aware datetime, like {later}, or delay_s=…")
        terms = structs.replace(self, retry=structs.replace(self.retry, **policy), **given)
        if {"limit", "debounce", "unique_key", "delay_s", "run_at"}.intersection(given):
            terms._check_combined()
        return terms

    def _check_combined(self) -> None:
        declared = [one.declared for one in self.limit]
        why = why_not_full(declared)
        if why is None and self.debounce is not None:
            unique, timed = self.unique_key is not None, (self.delay_s or self.run_at) is not None
            why = why_not_debounced(self.debounce.declared, declared, unique=unique, timed=timed)
        if why:
            raise AppError(why)

    def for_submit(self, given: SubmitOptions) -> Terms:
        """A copy with the changes for a single submit."""
        _refuse_unknown(given, SubmitOptions.__annotations__)
        return self.but(**given)

    def advertised(self) -> KindTerms:
        """The terms that workers advertise, for submits by name."""
        made = {"limits", "debounce", "fair_by"}
        own = {n: getattr(self, n) for n in KindTerms.__struct_fields__ if n not in made}
        limits = tuple(one.declared for one in self.limit)
        fair_by = BY_FUNCTION if callable(self.fair_by) else self.fair_by or ""
        debounce = None if self.debounce is None else self.debounce.declared
        return KindTerms(**own, limits=limits, debounce=debounce, fair_by=fair_by)

    @classmethod
    def of_kind(cls, info: KindInfo | None) -> Terms:
        """The terms that a worker advertised; the defaults if none did."""
        given = structs.asdict(info.terms if info is not None else KindTerms())
        limits, debounce = given.pop("limits"), given.pop("debounce")
        fair_by = given.pop("fair_by") or None
        return cls(
            **given,
            limit=tuple(map(Limit.advertised, limits)),
            debounce=None if debounce is None else Debounce.advertised(debounce),
            fair_by=fair_by,
        )

    @classmethod
    def of_job(cls, job: Job) -> Terms:
        """The terms on which a job was submitted, as far as an app declares such.

        A job on these terms has the body of the first: the body leaves out a field that is its
        default itself, but not one that only equals it.
        """
        options = job.options
        retry = structs.asdict(options.retry)
        given = {
            "queue": job.queue,
            "target": split(job.target)[0],
            "resources": options.resources,
            "priority": job.priority,
            "timeout_s": options.timeout_s,
            "expires_s": options.expires_s,
            "retry": RetryPolicy(**_without_defaults(RetryPolicy(), retry)),
            "limit": tuple(map(Limit.advertised, options.limits)),
            "debounce": options.debounce and Debounce.advertised(options.debounce),
            "fair_by": options.fair or None,
        }
        return cls(**_without_defaults(cls(), given))

    def pattern(
        self, id: UUID, kind: str, args: bytes, parameter: str, *, references: bool = False
    ) -> Submission:
        """The job of the elements of a map, which gives each to this parameter."""
        plain = structs.replace(self, limit=(), fair_by=None)
        job = plain.submission(id, kind, args, references=references)
        if self.fair_by is not None:
            fair = fair_key_of_elements(self.fair_by, kind, args, parameter)
            job = structs.replace(job, options=structs.replace(job.options, fair=fair))
        if not self.limit:
            return job
        limits = limits_of(self.limit, kind, args, references=references, element=parameter)
        if why := why_not(with_some_values(limits)):
            raise InvalidInput(f"job '{kind}': {why}")
        return structs.replace(job, options=structs.replace(job.options, limits=limits))

    def submission(
        self, id: UUID, kind: str, args: bytes, *, references: bool = False, raw: bool = False
    ) -> Submission:
        """A job on these terms; raises `InvalidInput` if it breaks a limit.

        The arguments of a `raw` job are bytes, so none of its keys can be that of a parameter.
        """
        limits: tuple[JobLimit, ...] = ()
        named = _NO_ARGUMENTS if raw else args
        if self.limit and named:
            limits = limits_of(self.limit, kind, named, references=references)
        debounce = self.debounce.of_job(kind, named) if self.debounce and named else None
        fair = ""
        if self.fair_by is not None and named:
            fair = fair_key_of(self.fair_by, kind, named, references=references)
        submission = Submission(
            id,
            kind,
            args,
            queue=self.queue,
            target=with_shape(self.target, self.resources),
            priority=self.priority,
            run_at=self.run_at,
            delay_s=self.delay_s if debounce is None else debounce.wait_s,
            unique_key=self.unique_key,
            options=Options(
                timeout_s=self.timeout_s,
                retry=self.retry,
                labels=self.labels,
                expires_s=self.expires_s,
                references=references,
                raw=raw,
                watchers=() if self.callback is None else (self.callback,),
                resources=self.resources,
                limits=limits,
                debounce=debounce,
                fair=fair,
            ),
        )
        check_submission(submission)
        return submission


def _shape(given: object) -> str:
    """The shape of the resources that a job is said to take."""
    if given is None:
        return ""
    if isinstance(given, str):
        return shape_of(parse(given))
    if not isinstance(given, Mapping):
        raise InvalidInput(
            f"resources is {given!r:.100}; give a map, like {{'cpu': 2, 'memory': '4g'}}"
        )
    return shape_of(checked(given))


def _without_defaults(plain: Struct, given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value != getattr(plain, name)}


_NO_ARGUMENTS = pack({}, "no arguments")

_POLICY_FIELDS = {
    "backoff_s": "backoff_s",
    "backoff_factor": "factor",
    "max_backoff_s": "max_backoff_s",
    "jitter": "jitter",
}


_SECONDS = ("timeout_s", "expires_s", "delay_s")

_EXACT = 2**53
"""Below this, a float holds every whole number."""

_WITH_THE_FUNCTION = {"kind", "isolation", "batch", "retry_on", "fail_on"}
"""Options that describe the function, not one submit."""

_DECLARED = {*_WITH_THE_FUNCTION, "retries", *_POLICY_FIELDS, *Terms.__struct_fields__} - {"retry"}


def _refuse_unknown(options: Collection[str], known: Collection[str]) -> None:
    for name in options:
        if name not in known and name in _WITH_THE_FUNCTION:
            raise AppError(
                f"job option '{name}' is unknown at a submit; declare it: @app.job({name}=…)"
            )
        if name not in known:
            near = get_close_matches(name, known, n=1)
            advice = (
                f"did you mean '{near[0]}'?" if near else f"there are {', '.join(sorted(known))}"
            )
            raise AppError(f"job option '{name}' is unknown; {advice}")


def _as_float(value: object) -> object:
    """A whole number as the float that a dispatcher makes of it: one body has one hash."""
    return float(value) if type(value) is int and abs(value) < _EXACT else value


def _attempts(retries: object) -> object:
    """A job with n retries has n + 1 attempts."""
    if isinstance(retries, bool):  # which Python takes for 0 or 1
        raise InvalidInput(f"retries is {retries}; give a whole number, like retries=3")
    return retries + 1 if isinstance(retries, int) else retries


def _labels(labels: object) -> tuple[object, ...]:
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise InvalidInput(f"labels is {labels!r}; give a list of texts")
    return tuple(labels)


def _check_type(given: Mapping[str, object], name: str, kind: type, wanted: str) -> None:
    if not isinstance(given.get(name), kind | None):
        raise InvalidInput(f"{name} is {given[name]!r}; give {wanted}")


class Call(Generic[R]):
    """One job, described but not yet submitted. Submitted twice, it is still one job."""

    __slots__ = (
        "__weakref__",
        "_access",
        "_keeps_id",
        "_unpack",
        "files_from",
        "results",
        "returns",
        "submission",
    )

    def __init__(
        self,
        access: Clients,
        submission: Submission,
        unpack: Callable[[bytes | None], R],
        *,
        keeps_id: bool = False,
        returns: Any = Any,
        results: Sequence[ResultReference] = (),
        files_from: Sequence[str] = (),
    ) -> None:
        self.submission = submission
        self.files_from = files_from
        """The keys of the jobs of its group whose files are its inputs."""
        self.returns = returns
        """The type of its result, if that is known."""
        self.results = results
        """The results of other jobs that its arguments stand for."""
        self._access = access
        self._unpack = unpack
        self._keeps_id = keeps_id

    @property
    def id(self) -> UUID:
        """The id of the job; `ctx.submit` replaces an id that you did not give."""
        return self.submission.id

    def unpacked(self, data: bytes | None) -> R:
        """What the job returned, from the bytes of its result."""
        return self._unpack(data)

    def take_id(self, id: UUID) -> Submission:
        """Gives the job this id, unless the user gave one or it was submitted before."""
        if not self._keeps_id:
            self.submission = structs.replace(self.submission, id=id)
        return self.submission

    def keep_id(self) -> None:
        """The job was submitted under its id."""
        self._keeps_id = True

    def __repr__(self) -> str:
        return f"<Call of {self.submission.kind} {self.id}>"

    async def submit_async(self, *, strict: bool = False) -> Handle[R]:
        """Submits the job; with `strict` only if some live worker serves its kind."""
        refuse_outside_a_group(self.submission)
        with sending((self.submission,)) as jobs:
            answers = await self._access.connection().submit(jobs, strict)
        return self.accepted(answers[0], self._access)

    submit = blocking(submit_async)

    def accepted(self, answer: SubmitAnswer, access: Clients, *, stored: bool = True) -> Handle[R]:
        """The handle of the job that the answer names; raises if the job was refused."""
        if answer.code:
            raise from_code(answer.code, answer.message)
        self.keep_id()
        return Handle(
            access,
            answer.id,
            answer.number,
            self.submission.kind,
            self._unpack,
            existing=answer.existing,
            stored=stored,
        )


# The names in Celery and Dramatiq.
_NAMES_ELSEWHERE = {
    "delay": "submit(…)",
    "apply_async": "options(…).submit(…)",
    "s": "call(…)",
    "signature": "call(…)",
    "send": "submit(…)",
    "send_with_options": "options(…).submit(…)",
    "message": "call(…)",
}


class Kind(Generic[P, R, Q, C]):
    """A function whose calls can be submitted as jobs. Called directly, it is the function.

    A submit takes P, and R is the job's result. A direct call takes Q, which includes the context,
    and returns C, which may be a coroutine.
    """

    __name__: str
    __wrapped__: Callable[Q, C]

    def __init__(
        self,
        access: Clients,
        handler: FunctionHandler,
        function: Callable[Q, C],
        terms: Terms,
        new_id: Callable[[], UUID],
    ) -> None:
        self.kind = handler.kind
        self.handler = handler
        self._access = access
        self._terms = terms
        self._new_id = new_id
        self._model: Submission | None = None
        """The first job that was described: others differ in their id and arguments."""
        functools.update_wrapper(self, function, updated=())

    def __repr__(self) -> str:
        return f"<Kind {self.kind}>"

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> C:
        """Runs the function here and now, without any job."""
        return self.__wrapped__(*args, **kwargs)

    if not TYPE_CHECKING:  # a type checker must still refuse unknown names

        def __getattr__(self, name: str) -> object:
            """Names the method here that users of other libraries look for."""
            kind = self.__dict__.get("kind", "?")
            here = _NAMES_ELSEWHERE.get(name)
            advice = f"; here it is {self.__dict__.get('__name__', kind)}.{here}" if here else ""
            raise AttributeError(
                f"job '{kind}' has no attribute '{name}'{advice}", name=name, obj=self
            )

    def history_job(self) -> HistoryJob:
        """How this job runs if a type of actors has it hear of its commits."""
        job = self._terms.submission(UUID(int=0), self.kind, b"")
        return HistoryJob(job.kind, job.queue, job.target, job.priority, job.options)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Describes a job and checks its arguments, without submitting it."""
        signature = self.handler.signature
        results: Sequence[ResultReference] = ()
        try:
            packed = signature.pack(args, kwargs)
        except NotSerialisable:  # as results of other jobs are; anything else is refused again
            packed, results = signature.pack_with_results(args, kwargs)
        given = self._terms.id
        return Call(
            self._access,
            self._submission(given or self._new_id(), packed, references=bool(results)),
            signature.unpack_result,
            keeps_id=given is not None,
            returns=signature.returns,
            results=results,
            files_from=self.handler.files_from(packed),
        )

    def map_call(
        self, over: object, constants: Mapping[str, object], parameter: str | None = None
    ) -> Call[list[R]]:
        """Describes a map for a group: one job of this kind for each element of a list.

        `over` is a list, or stands for the result of another job. Each element goes to the first
        parameter that `constants` do not give, or to `parameter`.
        """
        signature = self.handler.signature
        own, packed, shared = signature.pack_pattern(constants, parameter)
        whole, results = _over(self.kind, over)
        if isinstance(over, ResultReference):
            signature.check_elements(own, over)
        for element in whole if isinstance(whole, list) and not results else ():
            signature.check_element(own, element)
        if self._terms.id is not None:
            raise InvalidInput(f"job '{self.kind}': a map cannot have an id, as it is many jobs")
        job = self._terms.pattern(self._new_id(), self.kind, packed, own, references=bool(shared))
        args = pack_map(escaped(whole), MapPattern(own, job))
        options = Options(references=bool(results))
        submission = Submission(self._new_id(), MAP, args, options=options)
        check_map(submission)
        own_type = signature.returns
        returned: Any = list if own_type is Any else GenericAlias(list, (own_type,))
        return Call(
            self._access, submission, _nothing, returns=returned, results=[*results, *shared]
        )

    def _submission(self, id: UUID, args: bytes, *, references: bool) -> Submission:
        # What all jobs of these terms share is made and checked once.
        if self._terms.limit or self._terms.debounce or self._terms.fair_by is not None:
            return self._terms.submission(id, self.kind, args, references=references)
        if self._model is not None and not references:
            return structs.replace(self._model, id=id, args=args)
        made = self._terms.submission(id, self.kind, args, references=references)
        if not references:
            self._model = structs.replace(made, args=b"")
        return made

    async def submit_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Submits a job; when this returns, it is durable."""
        return await self.call(*args, **kwargs).submit_async()

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Submits a job; when this returns, it is durable."""
        return self.call(*args, **kwargs).submit()

    def options(self, **given: Unpack[SubmitOptions]) -> Kind[P, R, Q, C]:
        """This kind with other options (`SubmitOptions`); those not given stay."""
        terms = self._terms.for_submit(given)
        return Kind(self._access, self.handler, self.__wrapped__, terms, self._new_id)


def _over(kind: str, over: object) -> tuple[object, list[ResultReference]]:
    """What a map goes over as builtins, with a `Reference` for each result in it."""
    if not isinstance(over, ResultReference | list | tuple):
        raise InvalidInput(
            f"job '{kind}': a map goes over a list, or over the result of a job, and this is "
            f"{type(over).__name__}: give over=[…], or over=job.result"
        )
    whole, found = to_builtin_arguments({"over": over}, kind)
    return whole["over"], found


def _nothing(_: bytes | None) -> Any:
    """The result of a map itself; those of its elements are with these."""


AnyKind = Kind[..., Any, ..., Any]


def calls_of(calls: Iterable[Call[R]]) -> list[Call[R]]:
    """A list of the calls; raises `InvalidInput` for anything else."""
    check_calls(calls)
    found = list(calls)
    for call in found:
        check_call(call)
    return found


def check_calls(calls: object) -> None:
    """Raises `InvalidInput` for what cannot be calls; looks into a list, but pulls no iterator."""
    if isinstance(calls, AsyncIterable):
        raise InvalidInput(f"{calls!r} is asynchronous; await submit_many_async(…), which takes it")
    if not isinstance(calls, Iterable):
        raise InvalidInput(f"{calls!r} is not a list of calls; give a list, like [job.call(…)]")
    if isinstance(calls, list | tuple):
        for call in calls:
            check_call(call)


def check_call(call: object, *, in_group: bool = False) -> None:
    """Raises `InvalidInput` for anything but a call; for some that only a group can take."""
    if isinstance(call, Call):
        if not in_group:
            refuse_outside_a_group(call.submission)
        return
    maker = call.__name__ if isinstance(call, Kind) else "job"
    raise InvalidInput(f"{call!r} is not a call; give what {maker}.call(…) makes")

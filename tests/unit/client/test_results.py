"""Results of jobs as arguments of others, from the call to what is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from longshore import App, GroupBuilder
from longshore.client.kind import Call
from longshore.errors import InvalidArguments, InvalidInput, NotSerialisable
from longshore.payload.values import unpack
from longshore.wire import messages

from .fake import FakeDispatcher


@dataclass
class Box:
    """Something with fields."""

    page: str
    more: dict[str, int]


class Kinds:
    """An app whose jobs take results."""

    def __init__(self, app: App) -> None:
        @app.job
        def fetch(url: str) -> dict[str, Any]:
            return {"pages": [url]}

        @app.job
        def count(pages: list[str], factor: int = 1) -> int:
            return len(pages) * factor

        @app.job
        def store(value: Any, *, name: str = "x") -> str:
            return f"{name} {value}"

        @app.job
        def send(box: Box) -> None:
            pass

        @app.job
        def halve(number: float) -> float:
            return number / 2

        self.fetch, self.count, self.store, self.send = fetch, count, store, send
        self.halve = halve


@pytest.fixture
def kinds(app: App) -> Kinds:
    return Kinds(app)


def reference(job: str, *path: object) -> dict[str, object]:
    return {"$result": {"job": job, "path": list(path)}}


def args_of(call: Call[Any]) -> object:
    assert call.submission.options.references
    return unpack(call.submission.args)


def test_a_result_is_sent_as_a_reference_and_makes_a_dependency(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    with app.group("g") as group:
        a = group.add(kinds.fetch.call("u"))
        b = group.add(kinds.count.call(a.result["pages"], factor=2))
        group.add(kinds.store.call([a.result["pages"][0], b.result]), after=a, key="last")
    [request] = fake.of(messages.SubmitGroup)
    first, second, last = request.part.nodes
    assert [node.after for node in request.part.nodes] == [(), (0,), (0, 1)]
    assert [node.job.options.references for node in request.part.nodes] == [False, True, True]
    assert unpack(second.job.args) == {"pages": reference("fetch", "pages"), "factor": 2}
    assert unpack(last.job.args) == {"value": [reference("fetch", "pages", 0), reference("count")]}
    assert unpack(first.job.args) == {"url": "u"}


def test_keys_of_the_users_own_are_escaped_beside_results_and_only_there(
    app: App, kinds: Kinds
) -> None:
    group = app.group("g")
    a = group.add(kinds.fetch.call("u"))
    own = {"$result": 1, "deep": [{"$x": a.result}]}
    written = {"$$result": 1, "deep": [{"$$x": reference("fetch")}]}
    assert args_of(kinds.store.call(own)) == {"value": written}
    plain = kinds.store.call({"$result": 1})
    assert unpack(plain.submission.args) == {"value": {"$result": 1}}
    assert not plain.submission.options.references


def test_results_stand_in_fields_of_other_values(app: App, kinds: Kinds) -> None:
    group = app.group("g")
    a = group.add(kinds.fetch.call("u"))
    box = Box(a.result["pages"][-1], {"$n": 1})
    written = {"page": reference("fetch", "pages", -1), "more": {"$$n": 1}}
    assert args_of(kinds.send.call(box)) == {"box": written}


def test_what_is_not_a_result_is_checked_as_ever(app: App, kinds: Kinds) -> None:
    group = app.group("g")
    a = group.add(kinds.fetch.call("u"))
    with pytest.raises(InvalidArguments, match="argument 'factor' expected int, got str"):
        kinds.count.call(a.result, factor="2")  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="too many positional arguments"):
        kinds.count.call(a.result, 1, 2)  # type: ignore[call-arg, arg-type]
    with pytest.raises(InvalidArguments, match="missing a required argument: 'pages'"):
        kinds.count.call(factor=a.result)  # type: ignore[call-arg, arg-type]
    with pytest.raises(NotSerialisable, match=r"argument 'value' cannot be stored: .* type object"):
        kinds.store.call([a.result, object()])


def test_a_result_that_can_never_fit_is_told(app: App, kinds: Kinds) -> None:
    group = app.group("g")
    number = group.add(kinds.count.call(["a"]))
    text = group.add(kinds.store.call(number.result))
    with pytest.raises(
        InvalidArguments, match=r"'fetch': argument 'url' must be str, but 'count' returns int"
    ):
        kinds.fetch.call(number.result)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="must be float, but 'store' returns str"):
        kinds.halve.call(text.result)
    with pytest.raises(InvalidArguments, match=r"must be list\[str\], but 'fetch' returns dict"):
        kinds.count.call(group.add(kinds.fetch.call("u")).result)  # type: ignore[arg-type]
    for fits in (
        kinds.halve.call(number.result),
        kinds.fetch.call(text.result),
        kinds.count.call(group.add(kinds.fetch.call("u")).result["pages"]),
    ):
        assert fits.results


def test_a_result_of_another_group_is_refused(app: App, kinds: Kinds) -> None:
    one, other = app.group("one"), app.group("other")
    a = one.add(kinds.fetch.call("u"))
    with pytest.raises(
        InvalidInput,
        match=r"group 'other': .*'store' have <the result of 'fetch'\['p'\]>.* of another group",
    ):
        other.add(kinds.store.call(a.result["p"]))


def group_with_a_job(app: App, kinds: Kinds) -> tuple[GroupBuilder, Call[str]]:
    group = app.group("g")
    return group, kinds.store.call(group.add(kinds.fetch.call("u")).result)


def test_a_result_outside_a_group_is_refused(app: App, fake: FakeDispatcher, kinds: Kinds) -> None:
    _, call = group_with_a_job(app, kinds)
    for submit in (
        call.submit,
        lambda: app.submit_many([call]),
        lambda: app.submit_many(iter([call])),
        lambda: app.enqueue(object(), call),
    ):
        with pytest.raises(InvalidInput, match="only a job of a group can; add it to the group"):
            submit()
    assert not fake.requests


def test_a_result_is_no_sequence(app: App, kinds: Kinds) -> None:
    a = app.group("g").add(kinds.fetch.call("u"))
    with pytest.raises(TypeError, match="not iterable"):
        list(a.result)
    with pytest.raises(InvalidInput, match=r"has no part 1\.5; give a name or an index"):
        a.result["pages"][1.5]
    assert repr(a.result["pages"]) == "<the result of 'fetch'['pages']>"

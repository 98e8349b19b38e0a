"""Maps, gates and sub-groups in the SDK: how they are described, what is refused, what is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from longshore import App
from longshore.client.group import GroupBuilder
from longshore.core.group_limits import MAX_MAP_KEY_CHARS
from longshore.errors import InvalidArguments, InvalidInput, NotFound, WrongState
from longshore.executors.host.growth import OwnGroup
from longshore.model.group import GATE, MAP, SCOPE, Condition, GateVerdict, GroupVerdict, Node
from longshore.payload.maps import elements, read_map
from longshore.payload.values import pack, unpack
from longshore.wire import messages

from .fake import FakeDispatcher


class Kinds:
    """An app whose jobs work on pages."""

    def __init__(self, app: App) -> None:
        @app.job
        def fetch(url: str) -> dict[str, Any]:
            return {"pages": [url]}

        @app.job
        def find(url: str) -> list[str]:
            return [url]

        @app.job
        def resize(width: int, page: str) -> int:
            return width

        @app.job
        def count(pages: list[int]) -> int:
            return len(pages)

        @app.job
        def join(texts: list[str]) -> str:
            return "".join(texts)

        self.fetch, self.find, self.resize = fetch, find, resize
        self.count, self.join = count, join


@pytest.fixture
def kinds(app: App) -> Kinds:
    return Kinds(app)


def sent(fake: FakeDispatcher) -> dict[str, Node]:
    """The nodes that were sent, by key, in order."""
    return {node.key: node for one in fake.of(messages.SubmitGroup) for node in one.part.nodes}


def after(nodes: dict[str, Node], key: str) -> list[str]:
    keys = list(nodes)
    return [keys[place] for place in nodes[key].after]


def scope(nodes: dict[str, Node], key: str) -> str | None:
    place = nodes[key].scope
    return None if place is None else list(nodes)[place]


# maps


def test_a_map_is_sent_as_a_node_with_its_list_and_the_pattern_of_its_jobs(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    with app.group("g") as group:
        pages = group.add(kinds.fetch.call("u"))
        mapped = group.map(
            kinds.resize.options(retries=2), over=pages.result["pages"], width=7, key="sizes"
        )
        group.add(kinds.count.call(mapped.results))
    nodes = sent(fake)
    assert list(nodes) == ["fetch", "sizes", "count"]
    assert (after(nodes, "sizes"), after(nodes, "count")) == (["fetch"], ["sizes"])
    job = nodes["sizes"].job
    over, pattern = read_map(job.args)
    assert (job.kind, job.options.references) == (MAP, True)
    assert over == {"$result": {"job": "fetch", "path": ["pages"]}}
    assert (pattern.parameter, pattern.job.kind, unpack(pattern.job.args)) == (
        "page",
        "resize",
        {"width": 7},
    )
    assert pattern.job.options.retry.attempts == 3
    assert unpack(nodes["count"].job.args) == {"pages": {"$results": {"map": "sizes"}}}
    assert mapped.handle.id == job.id
    assert repr(mapped) == "<GroupMap sizes>"


def test_a_map_over_a_plain_list_may_have_keys_that_look_like_references(
    app: App, fake: FakeDispatcher
) -> None:
    @app.job
    def weigh(box: dict[str, Any]) -> int:
        return len(box)

    boxes = [{"$result": {"job": "x"}}, {"$$a": 1}]
    with app.group("g") as group:
        mapped = group.map(weigh, over=boxes)
    node = sent(fake)["weigh"]
    assert (mapped.key, node.job.options.references) == ("weigh", False)
    made = elements(node.job.args, {}, node.job.id, 1, 0, 10)
    assert [unpack(one.job.args) for one in made.jobs] == [{"box": box} for box in boxes]


def test_an_element_goes_to_the_first_parameter_that_is_not_given(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    with app.group("g") as group:
        group.map(kinds.resize, over=[1, 2], page="p", key="first")
        group.map(kinds.resize, over=["p"], width=1, key="second")
        group.map(kinds.resize, over=["p"], width=1, parameter="page", key="named")
    chosen = {key: read_map(node.job.args)[1].parameter for key, node in sent(fake).items()}
    assert chosen == {"first": "width", "second": "page", "named": "page"}


def test_a_map_goes_over_the_results_of_another(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    with app.group("g") as group:
        first = group.map(kinds.resize, over=["p"], width=1)
        group.map(kinds.resize, over=first.results, page="p", key="again")
        limit = group.add(kinds.count.call([1]))
        group.map(kinds.resize, over=["p"], width=limit.result, key="shared")
    nodes = sent(fake)
    assert after(nodes, "again") == ["resize"]
    assert after(nodes, "shared") == ["count"]
    assert read_map(nodes["again"].job.args)[0] == {"$results": {"map": "resize"}}
    pattern = read_map(nodes["shared"].job.args)[1]
    assert pattern.job.options.references
    assert not nodes["shared"].job.options.references


def test_what_cannot_be_mapped_is_refused_where_it_is_described(app: App, kinds: Kinds) -> None:
    group = app.group("g")
    page, text = group.add(kinds.find.call("u")), group.add(kinds.join.call(["a"]))
    sizes = group.map(kinds.resize, over=["p"], width=1)
    once = kinds.resize.options(unique_key="k")
    for bad, said in (
        (lambda: group.map(kinds.resize, over="abc", width=1), "goes over a list, or over the"),
        (lambda: group.map(kinds.resize, over=[1], width=1), "argument 'page' expected str"),
        (lambda: group.map(kinds.resize, over=text.result, width=1), "'join' returns str"),
        (lambda: group.map(kinds.resize, over=page.result, page="p"), r"returns list\[str\]"),
        (lambda: group.map(kinds.resize, over=[1]), "missing a required argument: 'page'"),
        (lambda: group.map(kinds.resize, over=[], width=1, page="p"), "no parameter is left"),
        (lambda: group.map(kinds.resize, over=[], width=1, parameter="width"), "do not give it"),
        (lambda: group.map(kinds.resize, over=[], parameter="size"), "unexpected keyword"),
        (lambda: group.map(once, over=["p"], width=1), "unique_key cannot be given to a map"),
        (lambda: group.map(len, over=[]), "is not a job"),  # type: ignore[arg-type]
        (lambda: group.add(kinds.join.call(sizes.results)), r"'resize' returns list\[int\]"),  # type: ignore[arg-type]
        (lambda: sizes.results[0], "take it whole"),
    ):
        with pytest.raises((InvalidArguments, InvalidInput), match=said):
            bad()


# gates


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"key": None}, "the key is None"),
        ({"key": "q", "timeout_s": -1}, "'q': timeout_s is -1; give seconds, more than 0"),
        ({"key": "q", "timeout_s": 0}, "'q': timeout_s is 0"),
        ({"key": "q", "timeout_s": "x"}, "'q': timeout_s is 'x'"),
    ],
)
def test_a_gate_that_cannot_be_is_refused_by_its_name(
    app: App, given: dict[str, Any], said: str
) -> None:
    group = app.group("g")
    with pytest.raises(InvalidInput, match=said):
        group.gate(**given)


def test_a_gate_is_a_node_whose_result_others_take(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    with app.group("g") as group:
        first = group.add(kinds.fetch.call("u"))
        gate = group.gate("approve", after=first, timeout_s=60)
        group.add(kinds.fetch.call(gate.result["url"]), key="next")
    nodes = sent(fake)
    job = nodes["approve"].job
    assert (job.kind, job.options.expires_s, job.options.timeout_s) == (GATE, 60, None)
    assert after(nodes, "next") == ["approve"]
    assert group.handle.open("approve", {"url": "v"}) is GateVerdict.OPENED
    [asked] = fake.of(messages.OpenGate)
    assert (asked.key, unpack(asked.value)) == ("approve", {"url": "v"})
    fake.end(gate.handle.id, pack({"url": "v"}, "a value"))
    assert gate.handle.result(30) == {"url": "v"}


@pytest.mark.parametrize(
    ("verdict", "error", "said"),
    [
        (GateVerdict.NOT_REACHED, WrongState, "cannot be opened yet"),
        (GateVerdict.ALREADY_ENDED, WrongState, "has ended already"),
        (GateVerdict.NOT_A_GATE, WrongState, "is not a gate"),
        (GateVerdict.NOT_FOUND, NotFound, "has no gate 'approve'"),
    ],
)
def test_a_gate_that_cannot_be_opened_is_told(
    app: App,
    fake: FakeDispatcher,
    kinds: Kinds,
    verdict: GateVerdict,
    error: type[Exception],
    said: str,
) -> None:
    with app.group("g") as group:
        group.gate("approve")
    fake.replies[messages.OpenGate] = lambda _: verdict
    with pytest.raises(error, match=said):
        group.handle.open("approve")


def test_a_coroutine_opens_cancels_a_part_and_retries_with_arguments(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    async def main() -> None:
        async with app.group("g") as group:
            group.gate("approve")
            group.sub("s").map(kinds.resize, over=["p"], width=1)
        handle = group.handle
        assert await handle.open_async("approve") is GateVerdict.OPENED
        assert await handle.cancel_async("s/") is GroupVerdict.CANCELLING
        await handle.retry_async("fetch", args={"url": "v"})
        await app.close_async()

    asyncio.run(main())
    assert [one.prefix for one in fake.of(messages.CancelGroup)] == ["s/"]
    [retry] = fake.of(messages.RetryGroup)
    assert (retry.keys, unpack(retry.args)) == (("fetch",), {"url": "v"})


# sub-groups


def test_only_a_subgroup_that_others_depend_on_gets_a_node(
    app: App, fake: FakeDispatcher, kinds: Kinds
) -> None:
    with app.group("g") as group:
        extract, load = group.sub("extract"), group.sub("load")
        inner = extract.sub("pdf")
        first = extract.add(kinds.fetch.call("a"))
        inner.add(kinds.fetch.call("b"), after=first)
        inner.map(kinds.resize, over=["p"], width=1)
        load.add(kinds.fetch.call("c"), after=[extract, "fetch"])
        group.add(kinds.fetch.call("d"))
        group.add(kinds.fetch.call("e"), after="extract/pdf", on="ended", key="last")
    nodes = sent(fake)
    assert set(nodes) == {
        "extract",
        "extract/fetch",
        "extract/pdf",
        "extract/pdf/fetch",
        "extract/pdf/resize",
        "load/fetch",
        "fetch",
        "last",
    }
    assert [key for key, node in nodes.items() if node.job.kind == SCOPE] == [
        "extract/pdf",
        "extract",
    ]
    assert scope(nodes, "extract/fetch") == "extract"
    assert scope(nodes, "extract/pdf") == "extract"
    assert scope(nodes, "extract/pdf/fetch") == scope(nodes, "extract/pdf/resize") == "extract/pdf"
    assert scope(nodes, "load/fetch") is scope(nodes, "extract") is None
    assert after(nodes, "load/fetch") == ["fetch", "extract"]
    assert (after(nodes, "last"), nodes["last"].on) == (["extract/pdf"], Condition.ENDED)
    keys = list(nodes)
    assert keys.index("extract/pdf/fetch") < keys.index("extract/pdf") < keys.index("extract")
    assert after(nodes, "extract") == []


def test_a_key_in_after_names_the_nearest_job(app: App, fake: FakeDispatcher, kinds: Kinds) -> None:
    with app.group("g") as group:
        group.add(kinds.fetch.call("a"), key="a")
        group.add(kinds.fetch.call("b"), key="b")
        sub = group.sub("s")
        sub.add(kinds.fetch.call("c"), key="a")
        sub.add(kinds.fetch.call("d"), after="a", key="near")
        sub.sub("t").add(kinds.fetch.call("e"), after=["a", "b"], key="deep")
    nodes = sent(fake)
    assert after(nodes, "s/near") == ["s/a"]
    assert sorted(after(nodes, "s/t/deep")) == ["b", "s/a"]


def build(group: GroupBuilder, kinds: Kinds, what: str) -> None:
    """Describes a group that cannot run."""
    sub = group.sub("s")
    match what:
        case "a cycle":
            sub.add(kinds.fetch.call("a"), after="out", key="in")
            group.add(kinds.fetch.call("b"), after=sub, key="out")
        case "its own sub-group":
            sub.add(kinds.fetch.call("a"), after=sub, key="in")
        case "a job above":
            sub.add(kinds.fetch.call("a"), key="in")
            group.add(kinds.fetch.call("b"), key="s")
        case "a map above":
            group.map(kinds.resize, over=["p"], width=1, key="s")
            sub.add(kinds.fetch.call("a"), key="in")
        case "nothing in it":
            group.add(kinds.fetch.call("b"), after=sub)
        case "the result of a map":
            mapped = group.map(kinds.resize, over=["p"], width=1)
            call = kinds.join.call([mapped.results])  # type: ignore[list-item]
            assert call.submission.options.references
            group.add(call)
            group.add(kinds.fetch.call("b"), after="t")


BAD = {
    "a cycle": "'s/in' after 'out' after 's'|'out' after 's' after 's/in'|'s' after 's/in' after",
    "its own sub-group": "wait for each other: .*'s' after 's/in'|'s/in' after 's' after",
    "a job above": "the key 's' is of a job, and 's/in' lies below it",
    "a map above": "the key 's' is of a job, and 's/in' lies below it",
    "nothing in it": "depends on 's', which the group does not have",
    "the result of a map": "depends on 't'",
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_run_is_refused_at_the_end_of_the_block(
    app: App, fake: FakeDispatcher, kinds: Kinds, what: str
) -> None:
    with pytest.raises(InvalidInput, match=BAD[what]), app.group("g") as group:
        build(group, kinds, what)
    assert not fake.requests


def test_a_subgroup_of_another_group_is_refused(app: App, kinds: Kinds) -> None:
    one, other = app.group("one"), app.group("other")
    with pytest.raises(InvalidInput, match="'s', which is of another group"):
        other.add(kinds.fetch.call("a"), after=one.sub("s"))
    with pytest.raises(InvalidInput, match="has a character that keys may not have"):
        one.sub("a b")


# mistakes


def test_a_name_that_there_is_not_says_what_to_write(app: App, kinds: Kinds) -> None:
    group = app.group("g")
    job, gate = group.add(kinds.fetch.call("u")), group.gate("approve")
    mapped, sub = group.map(kinds.resize, over=["p"], width=1), group.sub("s")
    wrong = [
        (mapped, "result", "`.results` stands for the list of them"),
        (job, "results", "it is one job: `.result` stands for what it returns"),
        (gate, "results", "<GroupJob approve> has no 'results': it is one job"),
        (sub, "result", "take that of a job or a map that was added to it"),
        (sub, "handle", "only the group and its jobs have one"),
        (job, "wait", "once the group is submitted, `.handle.wait` is there"),
        (group, "wait", "once the block has ended, `.handle.wait` is there"),
        (group, "result", r"once the block has ended, take `.handle.result\(KEY\)`"),
        (job, "colour", "<GroupJob fetch> has no 'colour'$"),
    ]
    for who, name, said in wrong:
        assert not hasattr(who, name)
        with pytest.raises(AttributeError, match=said):
            getattr(who, name)


def test_a_job_says_what_to_write_for_what_it_adds(kinds: Kinds) -> None:
    own = OwnGroup(lambda job: None)
    job, mapped = own.add(kinds.fetch.call("u")), own.map(kinds.resize, over=["p"], width=1)
    wrong = [
        (mapped, "result", "`.results` stands for the list of them"),
        (job, "results", "it is one job: `.result` stands for what it returns"),
        (job, "handle", "only once the job that adds it has succeeded"),
    ]
    for who, name, said in wrong:
        with pytest.raises(AttributeError, match=said):
            getattr(who, name)


def test_a_map_needs_room_for_the_keys_of_its_jobs(app: App, kinds: Kinds) -> None:
    group = app.group("g")
    group.map(kinds.resize, over=["p"], width=1, key="m" * MAX_MAP_KEY_CHARS)
    said = "the key has 191 characters; a map may have 190, because its jobs are called KEY/0"
    with pytest.raises(InvalidInput, match=said):
        group.map(kinds.resize, over=["p"], width=1, key="m" * (MAX_MAP_KEY_CHARS + 1))

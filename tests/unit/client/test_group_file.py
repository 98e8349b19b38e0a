"""Groups in files: what YAML and JSON mean, what parameters fill, where an error points."""

from __future__ import annotations

import json

import pytest

from longshore import Limit
from longshore.client import located
from longshore.client.group_file import read_group
from longshore.client.ids import fresh_id
from longshore.client.kind import Terms
from longshore.errors import InvalidInput, LongshoreError
from longshore.model.group import Condition, GroupHead, Node
from longshore.model.limits import JobLimit, Rate
from longshore.model.worker import KindInfo
from longshore.payload.values import unpack

FLOW = """\
name: nightly-${day}
fail_fast: true
labels: [reports]
jobs:
  - key: fetch
    kind: fetch
    args: {url: "https://x/${day}", pages: "${pages}", price: "$${x}"}
  - kind: pack
    after: fetch
    retries: 3
    timeout_s: 1.5
    queue: slow
  - kind: pack
    after: [fetch, pack]
    on: ended
    delay_s: 2
"""


def group(text: str, *given: str, file: str = "flow.yaml") -> tuple[GroupHead, list[Node]]:
    return read_group(file, text.encode(), given).in_order(fresh_id, {})


def test_a_file_describes_a_group() -> None:
    head, nodes = group(FLOW, "day=2026-11-16", "pages=3")
    assert (head.name, head.jobs, head.fail_fast) == ("nightly-2026-11-16", 3, True)
    assert head.labels == ("reports",)
    assert [node.key for node in nodes] == ["fetch", "pack", "pack-2"]
    assert [node.after for node in nodes] == [(), (0,), (0, 1)]
    assert [node.on for node in nodes][-1] is Condition.ENDED
    first, second, third = (node.job for node in nodes)
    filled = {"url": "https://x/2026-11-16", "pages": 3, "price": "${x}"}
    assert unpack(first.args) == filled
    assert (second.queue, second.options.timeout_s) == ("slow", 1.5)
    assert second.options.retry.attempts == 4
    assert third.delay_s == 2


def test_results_are_arguments_and_make_dependencies() -> None:
    text = """\
name: x
jobs:
  - {kind: pack, args: {pages: [{"$result": {"job": "fetch", "path": ["pages", 0]}}]}}
  - kind: fetch
    args: {own: {"$result of mine": 1}}
  - {kind: tell, args: {"$$result": 1}}
"""
    _, (fetch, pack, tell) = group(text)
    assert (fetch.key, pack.key, pack.after) == ("fetch", "pack", (0,))
    assert [node.job.options.references for node in (fetch, pack, tell)] == [False, True, True]
    reference = {"$result": {"job": "fetch", "path": ["pages", 0]}}
    assert unpack(pack.job.args) == {"pages": [reference]}


def test_a_parameter_may_be_a_list_or_a_map_anywhere() -> None:
    text = """\
jobs:
  - {kind: a, args: {x: "${p}"}}
  - {kind: b, args: "${q}"}
  - {kind: c, after: "${r}", labels: "${r}"}
  - {kind: d, map: {over: "${p}", parameter: x}}
name: n
"""
    _, nodes = group(text, 'p=[1, {"y": 2}]', 'q={"z": 3}', 'r=["a", "b"]')
    jobs = {node.key: node for node in nodes}
    assert unpack(jobs["a"].job.args) == {"x": [1, {"y": 2}]}
    assert unpack(jobs["b"].job.args) == {"z": 3}
    assert {nodes[at].key for at in jobs["c"].after} == {"a", "b"}
    assert jobs["c"].job.options.labels == ("a", "b")
    assert unpack(jobs["d"].job.args)["over"] == [1, {"y": 2}]


def test_a_map_and_args_cannot_both_give_a_parameter() -> None:
    text = "name: n\njobs:\n  - {kind: a, args: {x: 1}, map: {over: [5], parameter: x}}\n"
    with pytest.raises(InvalidInput, match="line 3: the map gives each element to 'x'; leave it"):
        group(text)


def test_what_an_app_declares_holds_where_the_file_says_nothing() -> None:
    described = read_group("flow.yaml", FLOW.encode(), ["day=x", "pages=1"])
    assert described.kinds == ["fetch", "pack"]
    declared = {"pack": Terms(queue="packing", priority=7)}
    _, (_, second, third) = described.in_order(fresh_id, declared)
    assert (second.job.queue, second.job.priority) == ("slow", 7)
    assert (third.job.queue, third.job.priority) == ("packing", 7)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("5", JobLimit("group=", 5)),
        ("{concurrency: 2, rate: 9/s}", JobLimit("group=", 2, Rate(9, 1.0))),
        ("null", None),
    ],
)
def test_a_file_limits_the_whole_group(given: str, found: JobLimit | None) -> None:
    head, _ = group(f"name: x\nlimit: {given}\njobs:\n  - kind: a\n")
    assert head.limit == found


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("[1, 2]", "line 2: a group has one limit"),
        ("{concurrency: 2, key: tenant}", "line 2: the limit of a group has the key 'tenant'"),
        ("{concurrency: 2, full: drop_newest}", "says full='drop_newest', which a job of a group"),
        ("-1", "line 2: a concurrency"),
    ],
)
def test_what_cannot_limit_a_group_is_refused(given: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        group(f"name: x\nlimit: {given}\njobs:\n  - kind: a\n")


def test_a_key_that_a_function_makes_is_given_in_the_file() -> None:
    declared = Terms().but(limit=Limit(1, key=lambda given: "day=a"))
    told = {"close": Terms.of_kind(KindInfo(terms=declared.advertised()))}
    text = "name: x\njobs:\n  - kind: close\n    limit: {concurrency: 1, key: day=a}\n"
    _, [node] = read_group("g.yaml", text.encode()).in_order(fresh_id, told)
    assert node.job.options.limits == (JobLimit("day=a", 1),)
    with pytest.raises(InvalidInput, match=r"line 3: .*cannot call it; give the"):
        read_group("g.yaml", text[: text.index("    limit")].encode()).in_order(fresh_id, told)


def test_json_is_read_as_json() -> None:
    args = {"n": 1e3, "big": 12345678901234, "text": "on", "odd": "\\ud83d 😀", "none": None}
    whole = {"name": "x", "jobs": [{"kind": "a", "args": args, "on": "succeeded"}]}
    for text in (json.dumps(whole), json.dumps(whole, indent="\t", ensure_ascii=False)):
        _, [node] = group(text, file="flow.json")
        assert unpack(node.job.args) == args


def test_yaml_is_read_as_its_version_1_2_has_it() -> None:
    plain = "{a: on, b: yes, c: 2026-11-16, d: 0x10, e: 1e3, f: ~, g: '1', h: 010, i: true, j: -.5}"
    _, [node] = group(f"name: x\njobs: [{{kind: a, args: {plain}}}]")
    wanted = {"a": "on", "b": "yes", "c": "2026-11-16", "d": 16, "e": 1000.0, "f": None}
    wanted |= {"g": "1", "h": 10, "i": True, "j": -0.5}
    assert unpack(node.job.args) == wanted


def test_a_parameter_alone_is_a_value_in_arguments_and_text_in_names() -> None:
    text = "name: ${n}\njobs:\n  - {kind: a, key: '${n}', args: {n: '${n}', m: '${n}!'}}"
    head, [node] = group(text, "n=7")
    assert (head.name, node.key, unpack(node.job.args)) == ("7", "7", {"n": 7, "m": "7!"})


ONE = "name: x\njobs:\n  - kind: a\n"
BAD: dict[str, tuple[str, int, str]] = {
    "nothing": ("", 1, "it is empty"),
    "no map": ("- 1", 1, "a group has names and values"),
    "an alias": ("name: &n x\njobs: [*n]", 1, "aliases (*) and anchors (&) are not allowed"),
    "a tag": ("name: x\njobs: !!set {}", 2, "the tag tag:yaml.org,2002:set is not allowed"),
    "two documents": ("name: x\n---\nname: y", 2, "a second document begins"),
    "no YAML": ("name: x\njobs: [", 3, "it is not YAML"),
    "a bell": ("name: x\njobs: \x07", 2, "a character that YAML does not allow"),
    "too deep": ("[" * 60, 1, "nested too deep; 50 levels"),
    "a name twice": ("name: x\nname: y", 2, "'name' is there twice"),
    "a list as name": ("? [a]\n: b", 1, "a name must be plain text"),
    "no name": ("jobs: []", 1, "`name` is missing"),
    "no jobs": ("name: x", 1, "it has no `jobs`"),
    "jobs that are no list": ("name: x\njobs: {}", 2, "jobs must be a list"),
    "a number as name": ("name: 3\njobs: []", 1, "name is 3; it must be text: quote it"),
    "a flag that is none": ("name: x\nfail_fast: 1\njobs: []", 2, "fail_fast is true or false"),
    "a bad label": ("name: x\nlabels: [1]\njobs: []", 2, "an entry of labels is 1"),
    "an unknown field": (f"{ONE}    aftr: b", 4, "a job has no 'aftr'; did you mean 'after'?"),
    "an id": (f"{ONE}    id: 7", 4, "a job has no 'id'"),
    "a time": (f"{ONE}    run_at: 2030-01-01", 4, "a job has no 'run_at'"),
    "no kind": ("name: x\njobs:\n  - key: a", 3, "`kind` is missing"),
    "a bad kind": ("name: x\njobs:\n  - kind: a b", 3, "kind 'a b' has a character"),
    "args in a list": (f"{ONE}    args: [1]", 4, "args are given by name"),
    "a bad option": (f"{ONE}    retries: many", 3, "retries is 'many'; it must be a whole number"),
    "no number": (f"{ONE}    args: {{n: .inf}}", 4, ".inf is no number that a job can get"),
    "a long number": (f"{ONE}    args: {{n: {'9' * 5000}}}", 4, "too many digits"),
    "a huge number": (f"{ONE}    args: {{n: {'9' * 40}}}", 4, "the arguments of job 'a'"),
    "a condition on nothing": (f"{ONE}    on: failed", 3, "depends on nothing"),
    "a bad condition": (f"{ONE}    after: a\n    on: done", 3, "on is 'done'; it must be one of"),
    "an unknown job": (f"{ONE}  - kind: b\n    after: c", 4, "job 'b' depends on 'c'"),
    "a cycle": (f"{ONE}    after: b\n  - {{kind: b, after: a}}", 3, "wait for each other"),
    "a key twice": (f"{ONE}  - {{kind: b, key: a}}", 4, "2 jobs have the key 'a'"),
    "a bad reference": (
        f"{ONE}    args: {{x: {{$result: b}}}}",
        4,
        "is not a reference to a result",
    ),
    "a result of nobody": (
        f"{ONE}    args: {{x: {{$result: {{job: c}}}}}}",
        3,
        "job 'a' depends on 'c'",
    ),
    "a bad key": (f"{ONE}    key: a/", 3, "'/' between the names of sub-groups"),
    "a gate with a kind": (f"{ONE}    gate: true", 3, "a gate has no 'kind'"),
    "a gate without a key": ("name: x\njobs:\n  - gate: true", 3, "`key` is missing"),
    "a gate that is no flag": (f"{ONE}    gate: 1", 4, "gate is true or false"),
    "a map of nothing": (f"{ONE}    map: {{parameter: a}}", 4, "`over` is missing"),
    "a map without a parameter": (f"{ONE}    map: {{over: []}}", 4, "`parameter` is missing"),
    "a map over text": (f"{ONE}    map: {{over: x, parameter: a}}", 4, "over is a list, {$result"),
    "a map with more": (f"{ONE}    map: {{over: [], of: 1}}", 4, "a map has no 'of'"),
    "a key above others": (
        "name: x\njobs:\n  - {kind: a, key: p}\n  - {kind: a, key: p/q}",
        3,
        "the key 'p' is of a job, and 'p/q' lies below it",
    ),
    "no value": ("name: x\njobs: [{kind: '${day}'}]", 2, "${day} has no value; give it one: -p"),
    "a bad parameter": ("name: '${a b}'", 1, "${a b} is not a parameter"),
}


@pytest.mark.parametrize("what", BAD)
def test_an_error_names_the_file_and_the_line(what: str) -> None:
    text, line, said = BAD[what]
    with pytest.raises(LongshoreError) as raised:
        group(text)
    assert str(raised.value).startswith(f"flow.yaml, line {line}: ")
    assert said in str(raised.value)
    assert raised.value.exit_code == 2


def test_an_error_in_json_names_the_line_too() -> None:
    with pytest.raises(InvalidInput, match=r"^f.json, line 3: it is not JSON: .*trailing comma"):
        group('{"name": "x",\n"jobs": [],\n}', file="f.json")
    with pytest.raises(InvalidInput, match=r"f.json is nested too deep"):
        group("[" * 5000, file="f.json")


def test_bytes_that_are_no_text_are_said_so() -> None:
    with pytest.raises(InvalidInput, match=r"^f.yaml, line 2: it is not UTF-8"):
        located.read("f.yaml", b"name: x\n\xff")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("day=1", "pages=1", "week=3"), "-p week: flow.yaml has no ${week}; its parameters: day"),
        (("day=1", "day=2"), "-p day is given twice"),
        (("day",), "'day' is not KEY=VALUE"),
        (("day=x", "pages=NaN"), "JSON has no such number"),
    ],
)
def test_a_wrong_parameter_is_named(given: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        group(FLOW, *given)
    assert said in str(raised.value)

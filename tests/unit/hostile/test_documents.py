"""Whatever stands in a file, a body or a setting: it is taken, or refused with our own error."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.hostile.inputs import (
    as_json,
    broken_bytes,
    deep_json,
    deep_msgpack,
    packable,
    refusal,
    spoilt,
    texts,
    values,
)

from longshore.client.group_file import (
    described_job,
    group_in_body,
    group_in_lines,
    read_additions,
    read_group,
)
from longshore.config import load
from longshore.core.images import parse_image
from longshore.core.occurrences import check_cron, check_exclude, next_look, next_times
from longshore.errors import ConfigError, InvalidInput
from longshore.files.packs import Unpacking, frame
from longshore.files.place import checked
from longshore.model.fileset import FileEntry, Manifest, decode_manifest, encode_manifest
from longshore.model.schedule import Spec, Timing
from longshore.payload import etcdq

GROUP: dict[str, Any] = {
    "name": "nightly",
    "fail_fast": True,
    "labels": ["a", "b"],
    "callback": {"url": "https://example.org/hook"},
    "jobs": [
        {"kind": "fetch", "key": "one", "args": {"url": "https://example.org"}, "retries": 3},
        {"kind": "pack", "args": {"of": {"$result": {"job": "one"}}}, "after": ["one"]},
        {"kind": "each", "key": "m", "map": {"over": [1, 2], "parameter": "n"}, "on": "ended"},
        {"gate": True, "key": "approve", "after": "m", "timeout_s": 60},
        {"command": ["echo", "hello"], "key": "c", "after": "approve"},
        {"container": {"image": "alpine", "command": ["true"]}, "limit": {"at_once": 2}},
    ],
}
ETCDQ: dict[str, Any] = {
    "Container": {
        "Config": {"Image": "tools:1", "Cmd": ["true"], "Env": ["A=b"], "Memory": 1000000},
        "HostConfig": {"NetworkMode": "none"},
    },
    "Fileset": {"Input": {"Name": "in", "Patterns": ["**"]}, "Output": {"Name": "out"}},
    "Owner": "",
    "States": [],
}
SETTINGS = """
store = "sqlite:///jobs.db"
lease_s = 15
workers = 2
queues = ["a", "b"]
http = "127.0.0.1:7700"
log_level = "info"
connect = ["tcp://127.0.0.1:7702"]
http_behind_proxy = true
"""
NOW = datetime(2026, 3, 1, tzinfo=UTC)


# groups


@pytest.mark.parametrize("name", ["group.json", "group.yaml"])
def test_the_example_is_good(name: str) -> None:
    good = {**GROUP, "jobs": GROUP["jobs"][:5]}
    assert len(read_group(name, as_json(good)).jobs) == 5


@given(spoilt([GROUP]), st.sampled_from(["group.json", "group.yaml"]))
def test_a_group_in_a_file(document: Any, name: str) -> None:
    assert refusal(lambda: read_group(name, as_json(document)), InvalidInput) != ""
    assert refusal(lambda: read_additions(name, as_json(document)), InvalidInput) != ""


@given(st.binary(max_size=200) | broken_bytes([as_json(GROUP)]))
@example(deep_json())
@example(deep_json(b'{"jobs": %s}'))
@example(b"&a [*a, *a]")
@example(b"a: &x [1]\nb: [*x, *x]")
@example(b"!!python/object/apply:os.system ['true']")
def test_bytes_in_place_of_a_group(data: bytes) -> None:
    for name in ("group.json", "group.yaml"):
        assert refusal(lambda name=name: read_group(name, data), InvalidInput) != ""  # type: ignore[misc]


@given(texts, texts)
def test_parameters_of_a_group(name: str, value: str) -> None:
    text = as_json({"name": "g", "jobs": [{"kind": "k", "args": {"a": f"${{{name}}}"}}]})
    assert refusal(lambda: read_group("g.yaml", text, [f"{name}={value}"]), InvalidInput) != ""


@given(spoilt([GROUP]))
def test_a_group_in_a_body(document: Any) -> None:
    if isinstance(document, dict):
        assert refusal(lambda: group_in_body(document), InvalidInput) != ""
    rows = document if isinstance(document, list) else [document]
    assert refusal(lambda: group_in_lines(enumerate(rows, 1)), InvalidInput) != ""


@given(st.dictionaries(texts, values, max_size=4) | spoilt(GROUP["jobs"]))
def test_one_job_that_is_added(fields: Any) -> None:
    if isinstance(fields, dict):
        assert refusal(lambda: described_job(fields), InvalidInput) != ""


# other documents


@given(spoilt([ETCDQ]).map(as_json) | st.binary(max_size=100) | broken_bytes([as_json(ETCDQ)]))
@example(deep_json())
@example(deep_json(b'{"Container": {"Config": {"Image": %s}}}'))
@example(deep_json(b'{"Container": {"Config": {"Image": "a"}, "Other": %s}}'))
def test_a_document_of_the_etcd_job_queue(data: bytes) -> None:
    assert refusal(lambda: etcdq.arguments(etcdq.read_job(data)), InvalidInput) != ""


@given(texts | st.from_regex(r"[a-z0-9./:@_-]{1,60}", fullmatch=True))
@example("a" + "-" * 499)
@example("a" * 500)
@example("/".join("a" * 250))
def test_the_name_of_an_image(text: str) -> None:
    assert refusal(lambda: parse_image(text), InvalidInput) != ""


MANIFEST = encode_manifest(
    Manifest((FileEntry("a/b.txt", 3, bytes(32)), FileEntry("c", 5, bytes(32), executable=True)))
)


@given(
    broken_bytes([MANIFEST])
    | spoilt([[[["a", "x" * 32, 3]]]]).map(packable)
    | st.binary(max_size=100)
)
@example(deep_msgpack())
@example(b"\x92\x90" + deep_msgpack())
@example(msgspec.msgpack.encode([[[b"\xff", bytes(32), 1]]]))
@example(b"\x91\x91\x93\xa1\xff\xc4\x20" + bytes(32) + b"\x01")
def test_a_manifest(data: bytes) -> None:
    assert refusal(lambda: checked(decode_manifest(data)), InvalidInput) != ""


@given(st.lists(broken_bytes([frame(hashlib.sha256(b"abc").digest(), b"abc") * 3]), max_size=3))
def test_a_pack_of_blobs(pieces: list[bytes]) -> None:
    unpacking = Unpacking()

    def unpack() -> None:
        for piece in pieces:
            list(unpacking.add(piece))
        unpacking.finish()

    assert refusal(unpack, InvalidInput) != ""
    assert len(unpacking._held) <= 64 * 1024 + sum(map(len, pieces))


# schedules

FIELD = st.from_regex(r"(\*|\d{1,3}|[A-Z]{3}|L|\d#\d|\d-\d)(/\d{1,3})?(,\d{1,2})?", fullmatch=True)
CRON = texts | st.lists(FIELD, min_size=4, max_size=7).map(" ".join)


@given(CRON, st.sampled_from(["UTC", "Europe/Vienna", "Australia/Lord_Howe", "Africa/Casablanca"]))
@example("0 0 30 2 *", "UTC")
@example("0 0 29 2 MON#5", "UTC")
@example("² * * * *", "UTC")
@example("٣ * * * *", "UTC")
@example("*/99999999999999999999 * * * *", "UTC")
@example("0-99999999999 * * * *", "UTC")
@example(" ".join(["*"] * 5000), "UTC")
@example(",".join(["1"] * 5000) + " * * * *", "UTC")
def test_a_cron_expression(expression: str, zone: str) -> None:
    if (said := refusal(lambda: check_cron(expression), InvalidInput)) is not None:
        assert said
        return
    timing = Timing((Spec(cron=expression, tz=zone),))
    assert len(next_times(timing, NOW, 3)) <= 3


@given(st.lists(CRON | st.from_regex(r"\d{4}-\d\d-\d\d(\.\.\d{4}-\d\d-\d\d)?"), max_size=3))
def test_what_a_schedule_leaves_out(exclude: list[str]) -> None:
    if (said := refusal(lambda: check_exclude(tuple(exclude)), InvalidInput)) is not None:
        assert said
        return
    next_look(Timing((Spec(every_s=3600.0),), exclude=tuple(exclude)), NOW)


# settings


@given(
    broken_bytes([SETTINGS.encode()])
    | st.binary(max_size=100)
    | st.text(max_size=80).map(lambda text: text.encode("utf-8", "replace"))
)
@example(b"a = " + b"[" * 5000)
@example(b"a = " + b"{a=" * 3000)
@example(b"lease_s = 1e999")
@example(b"lease_s = nan")
@example(b"workers = 99999999999999999999999999")
@example(b"[a.b.c]\nx = 1")
def test_a_file_of_settings(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "longshore.toml"
    file.write_bytes(data)
    assert refusal(lambda: load(file=str(file), environ={}), ConfigError) != ""


@given(st.dictionaries(texts, texts, max_size=3))
def test_variables_that_are_settings(given_texts: dict[str, str]) -> None:
    environ = {f"LONGSHORE_{name.upper()}": value for name, value in given_texts.items()}
    for key in ("LEASE_S", "WORKERS", "HTTP", "CONNECT", "LOG_LEVEL", "STORE", "QUEUES"):
        for value in given_texts.values():
            assert refusal(lambda: load(environ={f"LONGSHORE_{key}": value}), ConfigError) != ""  # noqa: B023
    assert refusal(lambda: load(environ=environ), ConfigError) != ""

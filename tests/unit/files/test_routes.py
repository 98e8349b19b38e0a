"""The routes of files over real HTTP: ranges, tags, tickets, and what is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.unit.files.gateways import FileGateway, gateway_at
from tests.unit.files.test_transfer import push
from yarl import URL

from longshore.files.transfer import FileClient
from longshore.model.fileset import FileEntry, Manifest, encode_manifest

TEXT = b"0123456789" * 20_000
SHA256 = hashlib.sha256(TEXT).hexdigest()
UPLOAD = "00000000-0000-4000-8000-000000000001"
FILE = "/dispatcher/filesets/data/latest/files/sub/a%20b.txt"


class Http:
    """A client of a gateway without any help."""

    def __init__(self, session: aiohttp.ClientSession, gateway: FileGateway) -> None:
        self.session = session
        self.gateway = gateway

    async def call(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """The status, the headers and the body of an answer."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        more: dict[str, Any] = (
            {"data": body} if isinstance(body, bytes) else {"json": body} if body else {}
        )
        async with self.session.request(
            method, URL(self.gateway.url + path, encoded=True), headers=given, **more
        ) as response:
            found = {name.lower(): value for name, value in response.headers.items()}
            return response.status, found, await response.read()

    async def json(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The document of an answer."""
        _, _, data = await self.call(method, path, body, **headers)
        return json.loads(data)


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[Http]:
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/a b.txt").write_bytes(TEXT)
    (folder / "small").write_text("small")
    async with (
        gateway_at(tmp_path / "files") as gateway,
        FileClient([gateway.url]) as client,
        aiohttp.ClientSession() as session,
    ):
        await push(client, folder)
        yield Http(session, gateway)


async def test_a_file_is_sent_whole_and_not_packed(http: Http) -> None:
    status, headers, body = await http.call("GET", FILE, Accept_Encoding="gzip")
    assert (status, body) == (200, TEXT)
    assert headers["etag"] == f'"{SHA256}"'
    assert headers["content-length"] == str(len(TEXT))
    assert "content-encoding" not in headers


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ("bytes=0-4", TEXT[:5]),
        ("bytes=199990-", TEXT[-10:]),
        ("bytes=-3", b"789"),
        ("bytes=199995-999999", TEXT[-5:]),
    ],
)
async def test_a_part_of_a_file_is_sent(http: Http, asked: str, part: bytes) -> None:
    status, headers, body = await http.call("GET", FILE, Range=asked)
    assert (status, body) == (206, part)
    assert headers["content-range"].endswith("/200000")


async def test_a_part_behind_the_end_is_refused(http: Http) -> None:
    status, headers, _ = await http.call("GET", FILE, Range="bytes=200000-")
    assert (status, headers["content-range"]) == (416, "bytes */200000")


@pytest.mark.parametrize("asked", ["bytes=5-1", "lines=1-2", "bytes=0-1,5-6", "bytes=-"])
async def test_a_range_that_is_none_asks_for_all(http: Http, asked: str) -> None:
    status, _, body = await http.call("GET", FILE, Range=asked)
    assert (status, body) == (200, TEXT)


async def test_who_has_the_file_does_not_get_it_again(http: Http) -> None:
    status, _, body = await http.call("GET", FILE, If_None_Match=f'"{SHA256}"')
    assert (status, body) == (304, b"")


async def test_a_range_of_another_file_is_not_joined_to_it(http: Http) -> None:
    status, _, body = await http.call("GET", FILE, Range="bytes=5-", If_Range='"other"')
    assert (status, body) == (200, TEXT)


async def test_head_tells_of_a_file_and_sends_none(http: Http) -> None:
    status, headers, body = await http.call("HEAD", FILE)
    assert (status, headers["content-length"], body) == (200, str(len(TEXT)), b"")


@pytest.mark.parametrize(
    "path",
    [
        "/dispatcher/filesets/data/latest/files/../../../etc/passwd",
        "/dispatcher/filesets/data/latest/files/%2Fetc%2Fpasswd",
        "/dispatcher/filesets/data/latest/files/missing",
        f"/dispatcher/blobs/{'0' * 64}",
    ],
)
async def test_what_is_not_there_is_not_found(http: Http, path: str) -> None:
    status, _, _ = await http.call("GET", path)
    assert status == 404


@pytest.mark.parametrize("name", ["..", "A" * 64, "%2E%2E%2F%2E%2E", "x" * 64])
async def test_a_blob_has_a_hash_for_its_name(http: Http, name: str) -> None:
    status, _, _ = await http.call("GET", f"/dispatcher/blobs/{name}")
    assert status in (400, 404)


# uploads


def manifest(*files: FileEntry) -> tuple[bytes, dict[str, Any]]:
    data = encode_manifest(Manifest(files))
    return data, {"manifest": hashlib.sha256(data).hexdigest(), "size": len(data)}


def address(sha256: str, size: int, of: dict[str, Any]) -> str:
    told = f"manifest={of['manifest']}&manifest_size={of['size']}&upload={UPLOAD}"
    return f"/dispatcher/blobs/{sha256}?size={size}&generation=1&{told}"


NEW = b"new bytes " * 1_000
NEW_SHA = hashlib.sha256(NEW).digest()
OCTETS = {"Content_Type": "application/octet-stream"}


async def pinned(http: Http, *files: FileEntry) -> dict[str, Any]:
    """A manifest that is stored, and whose files are not."""
    data, of = manifest(*files)
    await http.json("POST", "/dispatcher/blobs/pin", {**of, "upload": UPLOAD})
    where = address(of["manifest"], len(data), of)
    status, _, _ = await http.call("PUT", where, data, **OCTETS)
    assert status == 201
    return of


async def test_an_upload_goes_on_where_it_stopped(http: Http) -> None:
    of = await pinned(http, FileEntry("a", len(NEW), NEW_SHA))
    needed = await http.json("POST", "/dispatcher/blobs/pin", {**of, "upload": UPLOAD})
    assert [one["sha256"] for one in needed["needed"]] == [NEW_SHA.hex()]
    where = address(NEW_SHA.hex(), len(NEW), of)
    asked = where.replace(NEW_SHA.hex(), f"{NEW_SHA.hex()}/upload")
    status, headers, _ = await http.call("PUT", where, NEW[:4_000], **OCTETS)
    assert (status, headers["upload-offset"]) == (202, "4000")
    assert (await http.json("GET", asked))["offset"] == 4_000
    rest = f"bytes 4000-{len(NEW) - 1}/{len(NEW)}"
    status, _, _ = await http.call("PUT", where, NEW[4_000:], **OCTETS, Content_Range=rest)
    assert status == 201
    made = {**of, "upload": UPLOAD}
    assert (await http.json("POST", "/dispatcher/filesets/new", made))["version"] == 1
    _, _, body = await http.call("GET", "/dispatcher/filesets/new/1/files/a")
    assert body == NEW


async def test_an_upload_that_lacks_only_its_end_is_finished_by_nothing(
    http: Http, tmp_path: Path
) -> None:
    """All bytes came, and then the gateway died: before, or after, it made a blob of them."""
    of = await pinned(http, FileEntry("a", len(NEW), NEW_SHA))
    await http.call("POST", "/dispatcher/blobs/pin", {**of, "upload": UPLOAD})
    session = tmp_path / "files/uploads" / f"{NEW_SHA.hex()}.1.{UPLOAD.replace('-', '')}"
    session.write_bytes(NEW)
    where = address(NEW_SHA.hex(), len(NEW), of)
    asked = where.replace(NEW_SHA.hex(), f"{NEW_SHA.hex()}/upload")
    for _ in range(2):
        http.gateway.ledger.stored.pop(NEW_SHA, None)
        assert (await http.json("GET", asked))["offset"] == len(NEW)
        whole = {"Upload_Offset": str(len(NEW))}
        status, _, _ = await http.call("PUT", where, b"", **OCTETS, **whole)
        assert status == 201
        assert NEW_SHA in http.gateway.ledger.stored


async def test_an_upload_with_a_gap_is_refused(http: Http) -> None:
    of = await pinned(http, FileEntry("a", len(NEW), NEW_SHA))
    await http.call("POST", "/dispatcher/blobs/pin", {**of, "upload": UPLOAD})
    where = address(NEW_SHA.hex(), len(NEW), of)
    rest = f"bytes 4000-{len(NEW) - 1}/{len(NEW)}"
    status, _, _ = await http.call("PUT", where, NEW[4_000:], **OCTETS, Content_Range=rest)
    assert status == 409


async def test_wrong_bytes_are_refused_and_never_sealed(http: Http) -> None:
    of = await pinned(http, FileEntry("a", len(NEW), NEW_SHA))
    await http.call("POST", "/dispatcher/blobs/pin", {**of, "upload": UPLOAD})
    where = address(NEW_SHA.hex(), len(NEW), of)
    status, _, body = await http.call("PUT", where, b"x" * len(NEW), **OCTETS)
    assert (status, b"not those of" in body) == (400, True)
    status, _, _ = await http.call("POST", "/dispatcher/filesets/new", {**of, "upload": UPLOAD})
    assert status == 409


async def test_bytes_that_nobody_asked_for_are_refused(http: Http) -> None:
    of = await pinned(http, FileEntry("a", len(NEW), NEW_SHA))
    small = hashlib.sha256(b"small").hexdigest()
    status, _, _ = await http.call("PUT", address(small, 5, of), b"small", **OCTETS)
    assert status == 409, "it is stored already"


async def test_bytes_that_the_manifest_does_not_have_are_refused_and_spoil_nothing(
    http: Http,
) -> None:
    """Listed to dispatchers, they would keep the manifest from ever being sealed."""
    of = await pinned(http, FileEntry("a", len(NEW), NEW_SHA))
    foreign = hashlib.sha256(b"foreign").digest()
    refused = await http.call("PUT", address(foreign.hex(), 7, of), b"foreign", **OCTETS)
    assert (refused[0], b"has no file of this hash and size" in refused[2]) == (409, True)
    larger = address(NEW_SHA.hex(), len(NEW) + 1, of)
    assert (await http.call("PUT", larger, NEW + b"x", **OCTETS))[0] == 409
    told = f"manifest={of['manifest']}&manifest_size={of['size']}&upload={UPLOAD}"
    pack = foreign + (7).to_bytes(4, "big") + b"foreign"
    status, _, _ = await http.call("POST", f"/dispatcher/blobs/store?{told}", pack, **OCTETS)
    assert status == 409
    status, _, _ = await http.call("PUT", address(NEW_SHA.hex(), len(NEW), of), NEW, **OCTETS)
    assert status == 201
    status, _, _ = await http.call("POST", "/dispatcher/filesets/new", {**of, "upload": UPLOAD})
    assert status == 201


@pytest.mark.parametrize(
    "paths", [("../evil",), ("/etc/passwd",), ("A", "a"), ("a/b", "a"), ("x\ny",), ("a", "a/b")]
)
async def test_a_manifest_with_hostile_paths_is_refused(http: Http, paths: tuple[str, ...]) -> None:
    of = await pinned(http, *(FileEntry(path, len(NEW), NEW_SHA) for path in paths))
    status, _, _ = await http.call("POST", "/dispatcher/blobs/pin", {**of, "upload": UPLOAD})
    assert status == 400


async def test_a_manifest_that_is_none_is_refused(http: Http) -> None:
    data = b"no manifest"
    of: dict[str, Any] = {"manifest": hashlib.sha256(data).hexdigest(), "size": len(data)}
    await http.call("POST", "/dispatcher/blobs/pin", {**of, "upload": UPLOAD})
    await http.call("PUT", address(of["manifest"], len(data), of), data, **OCTETS)
    status, _, _ = await http.call("POST", "/dispatcher/blobs/pin", {**of, "upload": UPLOAD})
    assert status == 400


async def test_a_pack_with_a_wrong_blob_is_refused_whole(http: Http) -> None:
    of = await pinned(http, FileEntry("a", 3, hashlib.sha256(b"abc").digest()))
    await http.call("POST", "/dispatcher/blobs/pin", {**of, "upload": UPLOAD})
    told = f"manifest={of['manifest']}&manifest_size={of['size']}&upload={UPLOAD}"
    where = f"/dispatcher/blobs/store?{told}"
    good = hashlib.sha256(b"abc").digest() + (3).to_bytes(4, "big") + b"abc"
    for bad in (good[:-1], good[:-1] + b"x", b"", good + b"tail", b"\xff" * 40):
        status, _, _ = await http.call("POST", where, bad, **OCTETS)
        assert status == 400
    status, _, _ = await http.call("POST", where, good, **OCTETS)
    assert status == 201


async def test_an_input_needs_a_ticket(http: Http) -> None:
    wanted = {"fileset": "data"}
    status, _, _ = await http.call("POST", "/dispatcher/inputs/", wanted)
    assert status == 401
    headers = {"Authorization": "Longshore-Ticket something"}
    assert (await http.json("POST", "/dispatcher/inputs/", wanted, **headers))["version"] == 1


async def test_a_ticket_is_no_token_elsewhere(http: Http) -> None:
    headers = {"Authorization": "Longshore-Ticket something"}
    status, _, _ = await http.call("GET", "/dispatcher/filesets/", **headers)
    assert status == 401

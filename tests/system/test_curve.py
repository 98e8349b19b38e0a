"""Keys: who has the right ones gets through, and nobody else does. Real sockets, real processes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from longshore.links.keys import make_pair, read_secret
from longshore.testing.processes import Process, await_true, run
from longshore.testing.processes import settings as as_settings
from tests.system.conftest import ANY, APPS, Fleet

Settings = dict[str, object]
NOBODY_S = 0.7
"""How long it is looked that nobody answers. An answer among these takes some milliseconds."""


class Harbour(Fleet):
    """A fleet whose dispatchers ask for keys. Each key is named by who it is for."""

    def __init__(self, store: str, folder: Path) -> None:
        super().__init__(store, folder)
        self.keys = folder / "keys"
        for role in ("workers", "clients", "gateways"):
            (folder / role).mkdir()
        self.server, self.server_secret = make_pair(self.keys, "dispatcher")

    def key(self, name: str, role: str | None = None) -> Settings:
        """The settings of somebody with a new key, who is let in if a role is given."""
        public, secret = make_pair(self.keys, name)
        if role is not None:
            shutil.copy(public, self.folder / role)
        return {"curve_secret": secret, "curve_server_key": self.server}

    def guarded(self) -> Process:
        """A dispatcher that lets in those whose keys are in the folders."""
        return self.dispatcher(
            curve_secret=self.server_secret,
            curve_workers=self.folder / "workers",
            curve_clients=self.folder / "clients",
            curve_gateways=self.folder / "gateways",
        )

    def knock(self, dispatcher: Process, **settings: object) -> Process:
        """A worker that is started and not waited for."""
        words = ["--app", "harbour:app", "--connect", dispatcher.facts["backend"]]
        log = self.folder / f"knock-{len(self.processes)}.log"
        quick = {"broker_timeout_s": 0.1, **settings}
        process = Process("worker", *words, *as_settings(**quick), cwd=APPS, log=log)
        self.processes.append(process)
        return process

    def ask(
        self, dispatcher: Process, settings: Settings, *words: str, timeout: str = "10s"
    ) -> tuple[int, str, str]:
        """What a command exits with, prints and complains of."""
        to = ["--connect", dispatcher.facts["frontend"], "--set", f"request_timeout_s={timeout}"]
        done = run(*words, *to, *as_settings(**settings))
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def harbour(migrated_sqlite_url: str, tmp_path: Path) -> Iterator[Harbour]:
    harbour = Harbour(migrated_sqlite_url, tmp_path)
    yield harbour
    harbour.close()


def names(harbour: Harbour, dispatcher: Process, client: Settings) -> list[str]:
    """The live workers, as an operator sees them."""
    code, out, err = harbour.ask(dispatcher, client, "workers", "--json")
    assert code == 0, err
    return [one["name"] for one in json.loads(out) if one["alive"]]


def test_with_the_right_keys_everything_works_and_with_wrong_ones_nothing(
    harbour: Harbour,
) -> None:
    dispatcher = harbour.guarded()
    client = harbour.key("client", "clients")
    worker = harbour.key("worker", "workers")
    harbour.worker(dispatcher, **worker)
    submit = ("submit", "add", "a=1", "b=2", "--within", "20s")
    code, out, err = harbour.ask(dispatcher, client, *submit)
    assert (code, out.strip()) == (0, "3"), err

    strangers: list[Settings] = [
        harbour.key("stranger"),
        worker,
        {},
        {**client, "curve_server_key": harbour.keys / "stranger.public.toml"},
    ]
    for settings in strangers:
        code, out, err = harbour.ask(dispatcher, settings, "jobs", timeout="700ms")
        assert (code, out) == (4, "")
        if settings:
            assert "check that curve_server_key is the dispatchers' public key" in err

    knocking = [harbour.knock(dispatcher, **settings) for settings in (strangers[0], client, {})]
    advice = "or the keys do not fit"
    await_true(lambda: all(advice in one.said() for one in knocking[:2]), "they are told why")
    await_true(lambda: knocking[2].said().count("does not answer") > 1, "nobody answers it")
    assert len(names(harbour, dispatcher, client)) == 1
    assert "refused a peer at 127.0.0.1" in dispatcher.said()
    code, out, err = harbour.ask(dispatcher, client, *submit)
    assert (code, out.strip()) == (0, "3"), err
    assert harbour.processes[0].running


def test_a_key_that_is_added_counts_without_a_restart_and_one_removed_no_more(
    harbour: Harbour,
) -> None:
    dispatcher = harbour.guarded()
    client = harbour.key("client")
    assert harbour.ask(dispatcher, client, "jobs", timeout="700ms")[0] == 4
    entry = harbour.folder / "clients" / "client.public.toml"
    shutil.copy(harbour.keys / "client.public.toml", entry)
    assert harbour.ask(dispatcher, client, "jobs")[0] == 0
    entry.unlink()
    refused = lambda: harbour.ask(dispatcher, client, "jobs", timeout="700ms")[0] == 4  # noqa: E731
    await_true(refused, "the key that was removed is refused")


def test_a_plain_worker_and_a_plain_client_with_keys_are_served(harbour: Harbour) -> None:
    dispatcher = harbour.guarded()
    worker, client = harbour.key("worker", "workers"), harbour.key("client", "clients")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        backend = plain(context, dispatcher.facts["backend"], harbour, worker)
        frontend = plain(context, dispatcher.facts["frontend"], harbour, client)
        stranger = plain(context, dispatcher.facts["frontend"], harbour, None)
        swapped = plain(context, dispatcher.facts["backend"], harbour, client)
        for socket in (backend, swapped):
            socket.send_multipart([b"", b"READY"])
        for socket in (frontend, stranger):
            socket.send_multipart([b"", b"a job"])
        assert backend.poll(10_000)
        assert backend.recv_multipart() == [b"", b"a job"]
        backend.send_multipart([b"", b"a result"])
        assert frontend.poll(10_000)
        assert frontend.recv_multipart() == [b"", b"a result"]
        assert not stranger.poll(round(NOBODY_S * 1000))
        assert not swapped.poll(0)
        assert not backend.poll(0)
    finally:
        context.destroy(linger=0)


def plain(
    context: zmq.Context[zmq.Socket[bytes]],
    address: str,
    harbour: Harbour,
    key: Settings | None,
) -> zmq.Socket[bytes]:
    """A bare socket, as somebody without Longshore would make it."""
    socket = context.socket(zmq.DEALER)
    if key is not None:
        pair = read_secret(Path(str(key["curve_secret"])))
        socket.curve_publickey = pair.public.encode()
        socket.curve_secretkey = pair.secret.encode()
        socket.curve_serverkey = read_secret(harbour.server_secret).public.encode()
    socket.connect(address)
    return socket


def test_up_gives_its_own_key_to_its_workers(harbour: Harbour) -> None:
    words = ["--store", harbour.store, "--backend", "127.0.0.1:0", "--frontend", "127.0.0.1:0"]
    up = harbour.start(
        "up",
        *words,
        *("--app", "harbour:app"),
        *as_settings(
            curve_secret=harbour.server_secret,
            curve_workers=harbour.folder / "workers",
            curve_clients=harbour.folder / "clients",
        ),
    )
    client = harbour.key("client", "clients")
    code, out, err = harbour.ask(up, client, "submit", "add", "a=1", "b=2", "--within", "20s")
    assert (code, out.strip()) == (0, "3"), err


def test_only_a_gateways_key_sends_callbacks(harbour: Harbour) -> None:
    """Its key opens both ports. A key of a worker or a client does not make a gateway."""
    dispatcher = harbour.guarded()
    gate = harbour.key("gate", "gateways")
    both = harbour.key("both", "workers")
    shutil.copy(harbour.keys / "both.public.toml", harbour.folder / "clients")
    asked = ["--connect", dispatcher.facts["frontend"], "--backend", dispatcher.facts["backend"]]
    words = [*asked, "--http", ANY]
    posing = harbour.start("gateway", *words, *as_settings(**both))
    await_true(lambda: "not that of a gateway" in posing.said(), "it is told why")
    assert names(harbour, dispatcher, both) == []
    harbour.start("gateway", *words, *as_settings(**gate))
    await_true(lambda: len(names(harbour, dispatcher, both)) == 1, "the gateway attends")
    [name] = names(harbour, dispatcher, both)
    assert name.startswith("gateway-")


@pytest.mark.parametrize("flag", ["--backend", "--frontend"])
def test_a_dispatcher_without_keys_listens_on_this_machine_only(
    harbour: Harbour, flag: str
) -> None:
    done = run("dispatcher", "--store", harbour.store, flag, "0.0.0.0:0")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {flag.strip('-')} 0.0.0.0:0 can be reached")
    assert "longshore keys new" in done.stderr

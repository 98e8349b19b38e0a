"""Key files: how they are made and read, and whom a ring of them lets in."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from longshore.cli.main import execute
from longshore.config import load
from longshore.errors import ConfigError
from longshore.links.credentials import calling_with, dispatcher_keys, key_advice
from longshore.links.keys import (
    KeyRing,
    Keys,
    is_key,
    make_pair,
    public_key,
    read_keys,
    read_secret,
)

Captured = pytest.CaptureFixture[str]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_pair_is_a_public_file_for_all_and_a_secret_one_for_its_owner(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        public, secret = make_pair(tmp_path / "new" / "keys", "dock-1")
    finally:
        os.umask(before)
    assert (public.name, mode(public)) == ("dock-1.public.toml", 0o644)
    assert (secret.name, mode(secret)) == ("dock-1.secret.toml", 0o600)
    pair = read_secret(secret)
    assert read_keys(public).public == pair.public == public_key(str(public))
    assert pair.secret not in public.read_text()
    assert public_key(pair.public) == pair.public


def test_a_pair_is_never_overwritten(tmp_path: Path) -> None:
    _, secret = make_pair(tmp_path, "a")
    before = secret.read_text()
    with pytest.raises(ConfigError, match=r"a\.secret\.toml is there already; give another --name"):
        make_pair(tmp_path, "a")
    assert secret.read_text() == before


@pytest.mark.parametrize("name", ["", "../up", "a/b", 'a"', ".hidden"])
def test_a_name_that_is_no_file_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot name a key"):
        make_pair(tmp_path, name)


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    _, secret = make_pair(tmp_path, "a")
    secret.chmod(0o644)
    with pytest.raises(ConfigError, match="run: chmod 600"):
        read_secret(secret)


def test_what_is_no_key_file_is_named(tmp_path: Path) -> None:
    public, secret = make_pair(tmp_path, "a")
    other = read_keys(make_pair(tmp_path, "b")[0])
    with pytest.raises(ConfigError, match=r"holds only a public key; give the file that ends in"):
        read_secret(public)
    with pytest.raises(ConfigError, match=r"cannot read the key file .*gone"):
        read_keys(tmp_path / "gone")
    for text in ("", "nonsense", "public = 3", f'public = "{other.public[:39]}~"'):
        (tmp_path / "odd").write_text(text)
        with pytest.raises(ConfigError, match="odd"):
            read_keys(tmp_path / "odd")
    mixed = secret.read_text().replace(read_keys(public).public, other.public)
    (tmp_path / "odd").write_text(mixed)
    with pytest.raises(ConfigError, match="no sound key"):
        read_keys(tmp_path / "odd")


def test_only_forty_characters_of_z85_are_a_key() -> None:
    assert not is_key("")
    assert not is_key("x" * 39)
    assert not is_key("#" * 40)
    assert not is_key(" " * 40)
    assert is_key("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7")


# rings


class Moment:
    """A clock that goes on when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def ring(*sources: Path, on_fault: Callable[[str], None] = lambda text: None) -> KeyRing:
    own = Keys("own", "own")
    return KeyRing([str(source) for source in sources], own, now=Moment(), on_fault=on_fault)


def test_a_ring_follows_what_is_put_into_its_folder_and_taken_out(tmp_path: Path) -> None:
    keys = ring(tmp_path)
    assert "own" in keys
    public, _ = make_pair(tmp_path, "a")
    key = read_keys(public).public
    assert key in keys
    public.unlink()
    assert key not in keys


def test_a_ring_follows_a_file_that_is_replaced(tmp_path: Path) -> None:
    public, _ = make_pair(tmp_path / "x", "a")
    other, _ = make_pair(tmp_path / "x", "b")
    keys, old, new = ring(public), read_keys(public).public, read_keys(other).public
    assert old in keys
    assert new not in keys
    other.replace(public)
    assert old not in keys
    assert new in keys


def test_a_file_that_is_rewritten_in_place_counts_even_with_its_old_time(tmp_path: Path) -> None:
    public, _ = make_pair(tmp_path / "x", "a")
    other, _ = make_pair(tmp_path / "x", "b")
    keys, old, new = ring(public), read_keys(public).public, read_keys(other).public
    assert old in keys
    before = public.stat()
    public.write_text(other.read_text())
    os.utime(public, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert public.stat().st_ino == before.st_ino
    assert old not in keys
    assert new in keys


def test_what_is_not_a_public_key_file_lets_nobody_in_and_is_told_once(tmp_path: Path) -> None:
    _, secret = make_pair(tmp_path, "a")
    (tmp_path / "a.public.toml").write_text("junk")
    faults: list[str] = []
    keys = ring(tmp_path, on_fault=faults.append)
    assert read_secret(secret).public not in keys
    assert "anything" not in keys
    assert len(faults) == 1
    assert "a.public.toml" in faults[0]


# settings


def test_a_worker_or_client_needs_both_its_own_key_and_the_dispatchers(tmp_path: Path) -> None:
    public, secret = make_pair(tmp_path, "a")
    own, server = {"curve_secret": str(secret)}, {"curve_server_key": str(public)}
    assert calling_with(load(environ={})) is None
    assert calling_with(load({**own, **server}, environ={})) is not None
    with pytest.raises(ConfigError, match="curve_secret is set and curve_server_key is not"):
        calling_with(load(own, environ={}))
    with pytest.raises(ConfigError, match="curve_server_key is set and curve_secret is not"):
        calling_with(load(server, environ={}))


def test_a_dispatcher_needs_its_own_key_and_whom_to_let_in(tmp_path: Path) -> None:
    _, secret = make_pair(tmp_path, "a")
    own, lists = {"curve_secret": str(secret)}, {"curve_workers": str(tmp_path)}
    assert dispatcher_keys(load(environ={})) is None
    both = {**lists, "curve_clients": str(tmp_path)}
    assert dispatcher_keys(load({**own, **both}, environ={})) == read_secret(secret)
    with pytest.raises(ConfigError, match="curve_secret is set and curve_clients is not"):
        dispatcher_keys(load({**own, **lists}, environ={}))
    with pytest.raises(ConfigError, match="curve_workers is set and curve_secret is not"):
        dispatcher_keys(load(lists, environ={}))
    gone = {**both, "curve_clients": str(tmp_path / "gone")}
    with pytest.raises(ConfigError, match=r"curve_clients: there is no .*gone"):
        dispatcher_keys(load({**own, **gone}, environ={}))


def test_who_gets_no_answer_is_told_what_to_check_of_the_keys() -> None:
    assert key_advice(None, ["tcp://127.0.0.1:1", "tcp://localhost:2"], "client") == ""
    assert "curve_secret" in key_advice(None, ["tcp://10.0.0.1:1"], "client")
    assert "their curve_workers" in key_advice(lambda socket: None, [], "worker")


# the command


def test_keys_are_made_and_shown_by_command(tmp_path: Path, capsys: Captured) -> None:
    assert execute(["keys", "new", str(tmp_path), "--name", "a", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    secret = read_secret(Path(made["secret_file"])).secret
    for file in (made["public_file"], made["secret_file"]):
        assert execute(["keys", "show", file]) == 0
        shown = capsys.readouterr().out
        assert made["public"] in shown
        assert secret not in shown
    assert execute(["keys", "show", made["secret_file"], "--json"]) == 0
    expected = {"name": "a", "public": made["public"], "has_secret": True}
    assert json.loads(capsys.readouterr().out) == expected
    assert execute(["keys", "new", str(tmp_path)]) == 0
    assert "keep it secret" in capsys.readouterr().out
    assert execute(["keys", "show", str(tmp_path / "none")]) == 2
    assert execute(["keys", "show", made["public_file"], "--name", "b"]) == 2

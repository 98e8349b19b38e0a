"""Credentials for registries, from a file in Docker's own format."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from longshore.errors import ConfigError
from longshore.executors.host.programs.registries import check_registries, credentials_for


def written(folder: Path, **auths: object) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps({"auths": auths, "credsStore": "desktop", "HttpHeaders": {}}))
    return str(path)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_file_of_docker_login_opens_its_registry_and_no_other(tmp_path: Path) -> None:
    path = written(tmp_path, **{"ghcr.io": {"auth": encoded("ann:pa:ss")}})
    wanted = {"username": "ann", "password": "pa:ss", "serveraddress": "ghcr.io"}
    assert credentials_for(path, "ghcr.io") == wanted
    assert credentials_for(path, "quay.io") is None
    assert credentials_for("", "ghcr.io") is None


@pytest.mark.parametrize("key", ["https://index.docker.io/v1/", "docker.io"])
def test_docker_hub_goes_by_the_names_that_docker_gives_it(tmp_path: Path, key: str) -> None:
    path = written(tmp_path, **{key: {"username": "ann", "password": "secret"}})
    found = credentials_for(path, "docker.io")
    assert found is not None
    assert (found["username"], found["password"]) == ("ann", "secret")


def test_a_token_stands_for_a_password(tmp_path: Path) -> None:
    path = written(tmp_path, **{"r.example.com:5000": {"identitytoken": "t0ken"}})
    found = credentials_for(path, "r.example.com:5000")
    assert found == {"identitytoken": "t0ken", "serveraddress": "r.example.com:5000"}


def test_a_new_password_needs_no_restart(tmp_path: Path) -> None:
    path = written(tmp_path, **{"ghcr.io": {"auth": encoded("ann:old")}})
    check_registries(path)
    written(tmp_path, **{"ghcr.io": {"auth": encoded("ann:new")}})
    found = credentials_for(path, "ghcr.io")
    assert found is not None
    assert found["password"] == "new"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no config.json of Docker"),
        ('{"auths": []}', "is no config.json of Docker"),
        ('{"auths": {"ghcr.io": {}}}', "has no auth for ghcr.io.*credsStore"),
        ('{"auths": {"ghcr.io": {"auth": "%%"}}}', "has no auth for ghcr.io"),
        ('{"auths": {"ghcr.io": {"auth": "YW5u"}}}', "has no auth for ghcr.io"),
    ],
)
def test_a_file_that_is_no_good_is_refused_at_the_start(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        check_registries(str(path))


def test_a_file_that_is_not_there_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        check_registries(str(tmp_path / "config.json"))

"""The reference in docs/ says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from longshore import errors
from longshore.cli.commands.submit import submit
from longshore.cli.main import cli
from longshore.config import KEYS, Config, as_text, parse_seconds, value_of

DOCS = Path(__file__).resolve().parents[3] / "docs"
IN_WORDS = {
    "listen_url": "none",
    "resources": "this machine's",
    "http": "none",
    "metrics": "none",
    "http_hosts": "none",
    "http_board_token": "none",
    "http_allow": "none",
    "curve_secret": "none",
    "curve_server_key": "none",
    "curve_workers": "none",
    "curve_clients": "none",
    "curve_gateways": "none",
    "http_tls_cert": "none",
    "http_tls_key": "none",
    "on_worker_lost": "none",
    "on_worker_lost_secret": "none",
    "app": "none",
    "engine": "the usual one",
    "registries": "none",
    "instance_id": "the host's name",
    "private_ip": "found",
    "public_ip": "none",
    "first_devices": "0",
    "state_folder": "none",
    "secrets_folder": "none",
    "connect": "the `frontend`",
    "worker_connect": "the `backend`",
    "target": "this machine's",
    "queues": "all",
    "scratch": "the system's temporary folder",
    "files": "none",
    "files_staging": "the user's cache folder",
    "files_url": "none",
    "files_cache": "the user's cache folder",
}


def test_every_setting_is_in_the_reference_with_its_default() -> None:
    text = (DOCS / "configuration.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", text, re.MULTILINE))
    assert rows.keys() == KEYS.keys()
    for key, shown in rows.items():
        assert _is_default(key, shown), f"{key} is {value_of(Config(), key)}, not {shown}"


def _is_default(key: str, shown: str) -> bool:
    default: Any = value_of(Config(), key)
    if key in IN_WORDS:
        return not default and shown == IN_WORDS[key]
    text = shown.strip("`")
    if isinstance(default, float):
        return parse_seconds(text) == default
    return text == as_text(default)


def test_every_command_and_every_option_of_submit_is_in_the_reference() -> None:
    text = (DOCS / "cli.md").read_text()
    for name in cli.commands:
        assert f"`{name}`" in text, name
    shared = {"--connect", "--json", "--config", "--set", "--args", "--help"}
    for option in submit.params:
        for flag in option.opts:
            assert flag in shared or not flag.startswith("--") or f"`{flag}" in text, flag


def test_every_exit_code_is_in_the_reference() -> None:
    text = (DOCS / "cli.md").read_text()
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    used = {kind.exit_code for kind in kinds if issubclass(kind, errors.LongshoreError)}
    assert documented == used | {0, 130, 141}

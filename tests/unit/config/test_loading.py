"""Settings: where they come from, which one wins, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from longshore.config import KEYS, Config, as_text, load, parse_seconds, value_of
from longshore.errors import ConfigError
from longshore.model.program import PROGRAM_VARIABLES


def write(folder: Path, text: str, name: str = "longshore.toml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_without_any_source_every_setting_has_its_default(tmp_path: Path) -> None:
    config = load(environ={}, folder=tmp_path)
    assert config == Config()
    assert config.store == "sqlite:///.longshore/longshore.db"
    assert config.client_addresses() == ("tcp://127.0.0.1:7702",)
    assert config.worker_addresses() == ("tcp://127.0.0.1:7701",)


def test_a_flag_beats_a_variable_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    write(tmp_path, "slots = 1\nworkers = 1\nprocesses = 1\n")
    environ = {"LONGSHORE_SLOTS": "2", "LONGSHORE_PROCESSES": "2"}
    config = load({"slots": "3", "workers": None}, environ=environ, folder=tmp_path)
    assert (config.worker.slots, config.worker.processes, config.workers) == (3, 2, 1)


def test_the_limits_of_a_process_are_off_unless_set(tmp_path: Path) -> None:
    worker = load(environ={}, folder=tmp_path).worker
    assert (worker.max_jobs_per_process, worker.max_process_mb) == (0, 0)
    write(tmp_path, "max_jobs_per_process = 1000\n")
    environ = {"LONGSHORE_MAX_PROCESS_MB": "512"}
    worker = load({"max_jobs_per_process": "100"}, environ=environ, folder=tmp_path).worker
    assert (worker.max_jobs_per_process, worker.max_process_mb) == (100, 512)
    with pytest.raises(ConfigError, match="max-process-mb"):
        load({"max_process_mb": "-1"}, environ={}, folder=tmp_path)


def test_lookahead_can_be_turned_off(tmp_path: Path) -> None:
    assert load({"lookahead_s": "0"}, environ={}, folder=tmp_path).worker.lookahead_s == 0


def test_threads_are_set_like_processes(tmp_path: Path) -> None:
    assert load(environ={}, folder=tmp_path).worker.threads == 32
    write(tmp_path, "threads = 1\n")
    assert load(environ={}, folder=tmp_path).worker.threads == 1
    environ = {"LONGSHORE_THREADS": "2"}
    assert load(environ=environ, folder=tmp_path).worker.threads == 2
    assert load({"threads": "0"}, environ=environ, folder=tmp_path).worker.threads == 0


def test_set_beats_even_a_flag(tmp_path: Path) -> None:
    config = load({"slots": "3"}, ["slots = 4", "lease-s=2"], environ={}, folder=tmp_path)
    assert (config.worker.slots, config.dispatcher.lease_s) == (4, 2.0)


def test_a_file_can_be_named_by_flag_or_variable(tmp_path: Path) -> None:
    by_flag = write(tmp_path, "workers = 7", "a.toml")
    by_variable = write(tmp_path, "workers = 8", "b.toml")
    assert load(file=by_flag, environ={"LONGSHORE_CONFIG": by_variable}).workers == 7
    config = load(environ={"LONGSHORE_CONFIG": by_variable})
    assert (config.workers, config.file) == (8, by_variable)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*gone\.toml: No such file"):
        load(file=str(tmp_path / "gone.toml"), environ={})


def test_every_key_can_be_given_by_variable_and_by_set(tmp_path: Path) -> None:
    for key in KEYS:
        default = value_of(Config(), key)
        text = "127.0.0.1" if default in (None, "", ()) else as_text(default)
        by_variable = load(environ={f"LONGSHORE_{key.upper()}": text}, folder=tmp_path)
        by_set = load(overrides=[f"{key}={text}"], environ={}, folder=tmp_path)
        assert value_of(by_variable, key) == value_of(by_set, key), key


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2", 2), ("0.5", 0.5), ("500ms", 0.5), ("2s", 2), ("5m", 300), ("1h", 3600), ("1.5 M", 90)],
)
def test_a_duration_is_seconds_or_a_text_with_its_unit(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds
    assert load(environ={"LONGSHORE_LEASE_S": text}).dispatcher.lease_s == seconds


def test_in_the_file_a_duration_is_a_number_or_such_a_text(tmp_path: Path) -> None:
    write(tmp_path, 'lease_s = 20\nping_s = 0.5\ndrain_s = "2m"\n')
    config = load(environ={}, folder=tmp_path)
    assert (config.dispatcher.lease_s, config.dispatcher.ping_s) == (20, 0.5)
    assert config.worker.drain_s == 120


def test_lists_are_toml_lists_or_comma_separated(tmp_path: Path) -> None:
    write(tmp_path, 'queues = ["mail", "reports"]\nconnect = "10.0.0.1, tcp://10.0.0.2:99"\n')
    config = load(environ={}, folder=tmp_path)
    assert config.queues == ("mail", "reports")
    assert config.client_addresses() == ("tcp://10.0.0.1:7702", "tcp://10.0.0.2:99")
    assert load(environ={"LONGSHORE_QUEUES": "a, b,"}).queues == ("a", "b")


def test_clients_and_workers_find_a_dispatcher_that_listens_elsewhere() -> None:
    config = load(environ={"LONGSHORE_FRONTEND": "0.0.0.0:99", "LONGSHORE_BACKEND": "10.1.1.1"})
    assert config.client_addresses() == ("tcp://127.0.0.1:99",)
    assert config.worker_addresses() == ("tcp://10.1.1.1:7701",)


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load(environ={"LONGSHORE_SLOTS": "", "LONGSHORE_CONFIG": ""}) == load(environ={})


def test_variables_that_tell_a_program_its_devices_are_no_settings() -> None:
    environ = {"LONGSHORE_DEVICE_GPU": "0,1", "LONGSHORE_DEVICE_STORE": "2"}
    assert load(environ=environ) == load(environ={})


def test_variables_that_kubernetes_makes_for_a_service_are_left_alone() -> None:
    environ = {
        "LONGSHORE_SERVICE_HOST": "10.0.0.1",
        "LONGSHORE_SERVICE_PORT_BACKEND": "7701",
        "LONGSHORE_PORT": "tcp://10.0.0.1:7701",
        "LONGSHORE_PORT_7701_TCP_ADDR": "10.0.0.1",
    }
    assert load(environ=environ) == load(environ={})


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"LONGSHORE_LEASES_S": "1"},
            "LONGSHORE_LEASES_S: there is no setting leases_s; did you mean lease_s?",
        ),
        ({"LONGSHORE_ZZZZ": "1"}, "there is no setting zzzz; the keys are abort_before_s, "),
        ({"LONGSHORE_SLOTS": "many"}, "LONGSHORE_SLOTS is 'many'; it must be a whole number"),
        ({"LONGSHORE_SLOTS": "-1"}, "LONGSHORE_SLOTS is '-1'; it must be 0 or more"),
        ({"LONGSHORE_POLL_S": "0"}, "LONGSHORE_POLL_S is '0'; it must be more than 0"),
        (
            {"LONGSHORE_MAX_VALUE_BYTES": "70000000"},
            "LONGSHORE_MAX_VALUE_BYTES is '70000000'; it must be at most 25,165,824",
        ),
        ({"LONGSHORE_LEASE_S": "soon"}, "LONGSHORE_LEASE_S is 'soon'; it must be seconds"),
        ({"LONGSHORE_LEASE_S": "1e999"}, "LONGSHORE_LEASE_S is '1e999'; it must be seconds"),
        ({"LONGSHORE_LEASE_S": "1e300"}, "'1e300'; it must be 3,162,240,000 or less (100 years)"),
        ({"LONGSHORE_PREPARED_STATEMENTS": "perhaps"}, "it must be true or false"),
        ({"LONGSHORE_LOG_LEVEL": "loud"}, "must be one of debug, info, warning, error"),
        ({"LONGSHORE_STALLED_GROUPS": "kill"}, "must be one of log, repair, cancel"),
        ({"LONGSHORE_BACKEND": "a:b:c"}, "it must be HOST:PORT, like 127.0.0.1:7701"),
        ({"LONGSHORE_BACKEND": "x:70000"}, "it must be HOST:PORT"),
        ({"LONGSHORE_CONNECT": "ipc://x"}, "it must be HOST:PORT, like 127.0.0.1:7702"),
        ({"LONGSHORE_CONNECT": "h:0"}, "an address with a port to connect to"),
    ],
)
def test_a_wrong_variable_is_named_with_what_it_should_be(
    environ: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ=environ)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slot = 3", "slot in {file}: there is no setting slot; did you mean slots?"),
        ('slots = "3"', "slots in {file} is '3'; it must be a whole number, like 8"),
        ("slots = true", "slots in {file} is True; it must be a whole number, like 8"),
        ("slots = 1.5", "slots in {file} is 1.5; it must be a whole number, like 8"),
        ("lease_s = true", "lease_s in {file} is True; it must be seconds"),
        ("lease_s = nan", "lease_s in {file} is nan; it must be seconds"),
        (f"lease_s = {10**400}", "it must be seconds"),
        ("app = 3", "app in {file} is 3; it must be text"),
        ("queues = [1]", "queues in {file} is [1]; it must be texts"),
        ("prepared_statements = 1", "in {file} is 1; it must be true or false"),
        ("[worker]\nslots = 3", "{file} has a table [worker]; keys are not in tables"),
        ("slots =", "{file} is not TOML: Invalid value"),
    ],
)
def test_a_wrong_line_of_the_file_is_named_with_what_it_should_be(
    text: str, message: str, tmp_path: Path
) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(environ={}, folder=tmp_path)
    assert message.format(file=file) in str(caught.value)


def test_a_wrong_flag_is_named_as_it_was_written() -> None:
    with pytest.raises(ConfigError, match="--slots is 'x'; it must be a whole number"):
        load({"slots": "x"}, environ={})
    with pytest.raises(ConfigError, match="--connect is 'h:0'; it must be an address"):
        load({"worker_connect": "h:0"}, environ={})
    with pytest.raises(ConfigError, match="--set takes key=value, like lease_s=30; got 'slots'"):
        load(overrides=["slots"], environ={})
    with pytest.raises(ConfigError, match="--set slot: there is no setting slot; did you mean"):
        load(overrides=["slot=3"], environ={})


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["takeover_margin_s=4.9"], "takeover_margin_s is 4.9 and dispatcher_lease_s 5: "),
        (["takeover_margin_s=0.1"], "set takeover_margin_s to 5 or more"),
        (["dispatcher_lease_s=7.5"], "set takeover_margin_s to 7.5 or more"),
        (["renew_s=5"], "renew_s is 5 and dispatcher_lease_s 5: "),
        (["dispatcher_lease_s=1"], "set renew_s lower, to a third of dispatcher_lease_s or so"),
    ],
)
def test_leases_that_cannot_keep_what_is_promised_are_refused(
    overrides: list[str], words: str
) -> None:
    """G6: nobody may start a silent dispatcher's jobs while its workers hold a lease of it."""
    with pytest.raises(ConfigError) as raised:
        load(overrides=overrides, environ={})
    assert words in str(raised.value)


def test_the_margin_may_be_as_long_as_the_dispatchers_own_lease() -> None:
    config = load(overrides=["takeover_margin_s=5", "renew_s=4.9"], environ={})
    assert config.dispatcher.takeover_margin_s == config.dispatcher.dispatcher_lease_s


def test_several_apps_are_a_list_or_a_text_with_commas(tmp_path: Path) -> None:
    write(tmp_path, 'app = ["shop.jobs:app", "mail:app"]')
    assert load(environ={}, folder=tmp_path).app == "shop.jobs:app,mail:app"
    assert load({"app": "a:app, b:app"}, environ={}, folder=tmp_path).app == "a:app,b:app"


def test_what_a_program_finds_in_its_environment_is_no_setting() -> None:
    assert load(environ=dict.fromkeys(PROGRAM_VARIABLES, "x")) == load(environ={})

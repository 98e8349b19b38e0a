"""An app that cannot be loaded says what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.errors import AppError
from longshore.executors.host.apps import load_app, load_apps

HANDLERS = """
class App:
    def handlers(self):
        return {}
"""


@pytest.fixture(autouse=True)
def clean_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test's folder is the current one, and its modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def message_of(spec: str) -> str:
    with pytest.raises(AppError) as caught:
        load_apps(spec)
    return str(caught.value)


def test_the_app_is_found_in_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(HANDLERS + "app = App()")
    assert load_apps("tasks:app").handlers == {}
    assert sys.path[0] == str(tmp_path)


def test_the_attribute_is_app_unless_said_otherwise(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(HANDLERS + "app = App()")
    assert load_app("tasks") is load_app("tasks:app")


def test_a_module_in_a_package_is_found(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "tasks.py").write_text(HANDLERS + "jobs = App()")
    assert load_apps("shop.tasks:jobs").handlers == {}


@pytest.mark.parametrize("spec", ["", ":app", "my tasks:app", "tasks-1"])
def test_what_is_no_name_is_told_how_to_write_one(spec: str) -> None:
    assert "write module:attribute, like 'tasks:app'" in message_of(spec)


@pytest.mark.parametrize("spec", ["./shop/tasks.py", "shop/tasks.py:app", "shop/tasks"])
def test_a_file_is_told_its_modules_name(spec: str) -> None:
    assert "name its module instead, like 'shop.tasks:app'" in message_of(spec)


def test_a_missing_module_says_where_was_looked(tmp_path: Path) -> None:
    message = message_of("nonesuch:app")
    assert message.startswith(f"there is no module 'nonesuch': looked in {tmp_path} and ")
    assert "PYTHONPATH" in message


def test_a_missing_package_says_what_was_to_be_imported() -> None:
    assert "no module 'nonesuch' (to import 'nonesuch.tasks')" in message_of("nonesuch.tasks")


def test_a_missing_import_inside_the_module_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("import os\nimport nonesuch\n")
    message = message_of("tasks")
    assert message.startswith("importing 'tasks' failed: ModuleNotFoundError: No module named")
    assert f"{tmp_path}/tasks.py, line 2, in <module>: import nonesuch" in message


def test_a_module_that_raises_shows_the_last_lines_that_led_to_it(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("def connect():\n    1 / 0\n\nconnect()\n")
    lines = message_of("tasks").splitlines()
    assert lines == [
        "importing 'tasks' failed: ZeroDivisionError: division by zero",
        f"  {tmp_path}/tasks.py, line 4, in <module>: connect()",
        f"  {tmp_path}/tasks.py, line 2, in connect: 1 / 0",
    ]


def test_a_syntax_error_shows_its_line(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("x = 1\ndef (:\n")
    message = message_of("tasks")
    assert "SyntaxError" in message
    assert f"{tmp_path}/tasks.py, line 2: def (:" in message


def test_a_module_that_exits_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("import sys\nsys.exit(3)\n")
    assert "SystemExit: 3" in message_of("tasks")


def test_a_missing_attribute_lists_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("one = 1\ndef two(): ...\n_hidden = 3\n")
    message = message_of("tasks")
    assert message == f"the module 'tasks' ({tmp_path}/tasks.py) has no 'app'; it has: one, two"


def test_a_missing_attribute_points_to_the_app_there_is(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(HANDLERS + "jobs = App()\nother = 1\n")
    assert "the app in it is 'jobs': use 'tasks:jobs'" in message_of("tasks:app")


def test_something_else_than_an_app_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(HANDLERS + "app = 'text'\n")
    assert "'tasks' (" in message_of("tasks")
    assert "is a str, not a Longshore App" in message_of("tasks")
    assert "is the class App, not a Longshore App" in message_of("tasks:App")


def test_an_app_whose_handlers_raise_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(
        "class App:\n    def handlers(self):\n        raise ValueError('two jobs of one name')\n"
        "app = App()\n"
    )
    message = message_of("tasks")
    assert "cannot tell its jobs: ValueError: two jobs of one name" in message
    assert "line 3, in handlers" in message


JOBS = """
import longshore
app = longshore.App("some")
@app.job
def run() -> None: ...
"""


def test_two_apps_with_a_job_of_one_name_are_told_apart_by_both_names(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(JOBS)
    (tmp_path / "two.py").write_text(JOBS)
    message = message_of("one:app,two:app")
    assert message.startswith("the apps 'one:app' and 'two:app' both have a job 'run'")


def test_one_app_under_two_names_is_one_app(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(JOBS)
    (tmp_path / "two.py").write_text("from one import app")
    assert set(load_apps("one:app, two:app").handlers) == {"run"}

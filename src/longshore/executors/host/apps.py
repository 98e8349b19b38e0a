"""Finds the app that `module:attribute` names. Errors say what is wrong in the user's own files."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import ModuleType
from typing import NamedTuple, TypeGuard

from longshore.errors import AppError
from longshore.executors.host.failures import OWN_FOLDER, one_line
from longshore.executors.text import bounded
from longshore.model.worker import Pool
from longshore.ports import App, Handler, Handlers

DEFAULT_ATTRIBUTE = "app"
_FRAMES_SHOWN = 3
_NAMES_SHOWN = 20
_MAX_MESSAGE_BYTES = 8 * 1024
_MACHINERY = (OWN_FOLDER, importlib.__file__, contextlib.__file__, "<frozen importlib")


def load_app(spec: str) -> App:
    """Imports the app; the current folder comes first on the path, as with `python -m`."""
    module_name, attribute = _parse(spec)
    _put_first_on_path(os.getcwd())
    module = _import(module_name)
    if not hasattr(module, attribute):
        raise AppError(_missing(module, attribute))
    found: object = getattr(module, attribute)
    if not _is_app(found):
        raise AppError(_not_an_app(spec, module, found))
    return found


Span = AbstractAsyncContextManager[None]


class Apps(NamedTuple):
    """All apps of a worker: their handlers, and what to do around all jobs of a pool."""

    handlers: Handlers
    spans: Callable[[Pool], list[Span]]


def load_apps(specs: str) -> Apps:
    """The apps that `specs` names, with commas between them."""
    found = {name: load_app(name) for name in split(specs)}
    apps = list({id(app): app for app in found.values()}.values())

    def spans(pool: Pool) -> list[Span]:
        made = (app.lifespan(pool) for app in apps if hasattr(app, "lifespan"))
        return [span for span in made if span is not None]

    return Apps(_merged(found), spans)


def split(specs: str) -> list[str]:
    """The names of single apps in a text with commas; one, if there is no comma."""
    return [part.strip() for part in specs.split(",") if part.strip()] or [specs]


def _merged(apps: Mapping[str, App]) -> Handlers:
    merged: dict[str, Handler] = {}
    home: dict[str, str] = {}
    for spec, app in apps.items():
        for kind, handler in _handlers(spec, app).items():
            other = home.setdefault(kind, spec)
            if apps[other] is not app:
                raise AppError(
                    f"the apps '{other}' and '{spec}' both have a job '{kind}'; give one of them "
                    "another name with @app.job(kind=…), or run them in different workers"
                )
            merged[kind] = handler
    return merged


def _handlers(spec: str, app: App) -> Handlers:
    try:
        return app.handlers()
    except AppError:
        raise
    except Exception as error:
        raise AppError(f"the app '{spec}' cannot tell its jobs: {told(error)}") from None


def _parse(spec: str) -> tuple[str, str]:
    module, _, attribute = spec.partition(":")
    if module.endswith(".py") or "/" in module:
        name = module.removesuffix(".py").strip("./").replace("/", ".")
        raise AppError(f"'{spec}' is a file: name its module instead, like '{name}:app'")
    if not module or not all(part.isidentifier() for part in module.split(".")):
        raise AppError(f"'{spec}' does not name an app: write module:attribute, like 'tasks:app'")
    return module, attribute or DEFAULT_ATTRIBUTE


def _put_first_on_path(folder: str) -> None:
    if sys.path[:1] not in ([folder], [""]):
        sys.path.insert(0, folder)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise AppError(_no_module(name, error.name)) from None
        raise AppError(_broken(name, error)) from None
    except BaseException as error:
        raise AppError(_broken(name, error)) from None


def _no_module(name: str, missing: str) -> str:
    return (
        f"there is no module '{missing}'"
        + (f" (to import '{name}')" if missing != name else "")
        + f": looked in {os.getcwd()} and {len(sys.path) - 1} other places; start the worker in "
        "the folder that holds it, add that folder to PYTHONPATH, or install the package"
    )


def _broken(name: str, error: BaseException) -> str:
    return f"importing '{name}' failed: {told(error)}"


def told(error: BaseException) -> str:
    """The exception in one line, then the last of the user's lines that led to it."""
    steps = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_MACHINERY)
    ]
    lines = [" ".join(one_line(error).split())]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append(f"  {error.filename}, line {error.lineno}: {(error.text or '').strip()}")
    else:
        for step in steps[-_FRAMES_SHOWN:]:
            lines.append(f"  {step.filename}, line {step.lineno}, in {step.name}: {step.line}")
    return bounded("\n".join(lines), _MAX_MESSAGE_BYTES)


def _missing(module: ModuleType, attribute: str) -> str:
    there = [name for name in vars(module) if not name.startswith("_")]
    apps = [name for name in there if _is_app(getattr(module, name))]
    message = f"the module '{module.__name__}' ({_file_of(module)}) has no '{attribute}'"
    if apps:
        return f"{message}; the app in it is '{apps[0]}': use '{module.__name__}:{apps[0]}'"
    names = ", ".join(there[:_NAMES_SHOWN]) + (", …" if len(there) > _NAMES_SHOWN else "")
    return f"{message}; it has: {names or 'nothing'}"


def _not_an_app(spec: str, module: ModuleType, found: object) -> str:
    what = found.__name__ if isinstance(found, type) else type(found).__name__
    role = "the class" if isinstance(found, type) else "a"
    return f"'{spec}' ({_file_of(module)}) is {role} {what}, not a Longshore App"


def _file_of(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or "a folder without __init__.py"


def _is_app(value: object) -> TypeGuard[App]:
    return not isinstance(value, type) and callable(getattr(value, "handlers", None))

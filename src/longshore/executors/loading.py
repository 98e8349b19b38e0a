"""Finds the app that `module:attribute` names. Errors say what is wrong in the user's own files."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import ModuleType
from typing import TypeGuard

from longshore.errors import AppError
from longshore.executors.failures import one_line
from longshore.executors.text import bounded
from longshore.ports import App, Handlers

DEFAULT_ATTRIBUTE = "app"
_FRAMES_SHOWN = 3
_NAMES_SHOWN = 20
_MAX_MESSAGE_BYTES = 8 * 1024
_MACHINERY = (__file__, importlib.__file__, "<frozen importlib")


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


def load_handlers(spec: str) -> Handlers:
    """The handlers of the app that `spec` names, by their kinds."""
    app = load_app(spec)
    try:
        return dict(app.handlers())
    except Exception as error:
        raise AppError(f"the app '{spec}' cannot tell its jobs: {_told(error)}") from None


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
    return f"importing '{name}' failed: {_told(error)}"


def _told(error: BaseException) -> str:
    """The exception in one line, then the last of the user's lines that led to it."""
    steps = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_MACHINERY)
    ]
    lines = [one_line(error)]
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

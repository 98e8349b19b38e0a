"""`longshore filesets`: push and pull versions of files, look at them, and remove them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click
from rich.text import Text

from longshore.cli.options import Whole, client_options, duration, examples
from longshore.cli.view.filesets import (
    changes_table,
    files_table,
    filesets_table,
    maker,
    versions_table,
)
from longshore.cli.view.show import View, print_answer, print_json, print_view, time
from longshore.core.text import size_words
from longshore.core.version_retention import Known, old_versions
from longshore.errors import InvalidInput, LongshoreError, NotFound, WrongState
from longshore.files import documents as d

if TYPE_CHECKING:
    from longshore.cli.file_transfers import Files, Moved

T = TypeVar("T")

_REF: Final = re.compile(r"(?P<name>[^@]+)(?:@(?P<version>\d{1,15}|latest))?")
_PAGE: Final = 1_000
_ALL: Final = 1_000_000
_NEEDED: Final = "jobs or groups that have not ended need them"

Changes = list[tuple[str, str, int | None, int | None]]


class Ref(click.ParamType[tuple[str, int | None]]):
    """A fileset and, behind an @, a version of it."""

    name = "ref"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int | None]:
        """The name and the number; None is the newest."""
        found = _REF.fullmatch(value)
        if not found:
            self.fail(f"'{value}' is not a fileset, like data, or a version of it, like data@3")
        version = found["version"]
        return found["name"], None if version in (None, "latest") else int(version)


def _ask(context: click.Context, talk: Callable[[Files], Awaitable[T]]) -> T:
    """Connects to a gateway, and returns what `talk` returns."""
    # Imported here: an HTTP client takes as long to import as all the rest of the command line.
    from longshore.cli.file_transfers import ask_files

    return ask_files(context, talk)


_patterns = click.option(
    "--pattern",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Only files that match, like '**/*.csv'; with a ! in front, not these; repeatable.",
)


@click.group(
    name="filesets",
    epilog=examples(
        "longshore filesets push data ./data",
        "longshore filesets pull data ./copy",
        "longshore filesets ls --json",
    ),
    short_help="Push and pull versions of files, list and remove them.",
)
def filesets() -> None:
    """Push and pull versions of files, look at them, and remove them.

    A fileset is a named set of files. Each push makes a new version of it, which never changes.
    NAME is the newest version, NAME@3 is the third. These commands ask a gateway: the one of
    --connect, or of `files_url`, or one that the dispatchers of --connect know; otherwise
    http://127.0.0.1:7700.
    """


@filesets.command(
    name="push",
    epilog=examples(
        "longshore filesets push data ./data",
        "longshore filesets push models ./out --pattern '**/*.bin' --pattern '!tmp/**'",
    ),
)
@click.argument("name")
@click.argument("folder", type=click.Path(path_type=Path))
@_patterns
@client_options
def push_files(context: click.Context, /, name: str, folder: Path, **given: Any) -> None:
    """Make a version of the files of a folder.

    Only regular files are taken. Files that are stored already are not sent again.
    """
    from longshore.cli.file_transfers import push

    moved = _ask(context, lambda files: push(files, name, folder, given["patterns"]))
    _say_moved(given["as_json"], moved, "sent")


@filesets.command(
    name="pull",
    epilog=examples(
        "longshore filesets pull data ./copy",
        "longshore filesets pull data@3 ./copy --pattern '*.csv'",
    ),
)
@click.argument("ref", type=Ref())
@click.argument("folder", type=click.Path(path_type=Path))
@_patterns
@click.option("--force", is_flag=True, help="Replace files that have other content.")
@client_options
def pull_files(
    context: click.Context, /, ref: tuple[str, int | None], folder: Path, **given: Any
) -> None:
    """Put the files of a version into a folder.

    Files that are there already, or in the cache, are not fetched again.
    """
    from longshore.cli.file_transfers import pull

    moved = _ask(
        context,
        lambda files: pull(files, *ref, folder, given["patterns"], replace=given["force"]),
    )
    _say_moved(given["as_json"], moved, "fetched")


def _say_moved(as_json: bool, moved: Moved, verb: str) -> None:
    version = moved.version
    document = {
        "fileset": version.fileset,
        "version": version.version,
        "files": moved.files,
        "total_bytes": moved.total_bytes,
        f"{verb}_bytes": moved.moved_bytes,
    }
    words = (
        f"{version.fileset}@{version.version}: {_many(moved.files, 'file')}, "
        f"{size_words(moved.total_bytes)} ({size_words(moved.moved_bytes)} {verb})"
    )
    print_answer(as_json, document, words)


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number != 1 else ''}"


@filesets.command(
    name="ls",
    epilog=examples("longshore filesets ls", "longshore filesets ls data --json"),
)
@click.argument("name", required=False)
@click.option("--limit", type=Whole(1, 10_000), metavar="N", default=50, help="The most (50).")
@client_options
def list_filesets(
    context: click.Context, /, name: str | None, limit: int, as_json: bool, **given: Any
) -> None:
    """List filesets, or the versions of one, newest first."""
    if name is None:
        found = _ask(context, lambda files: _filesets(files, limit))
        if as_json:
            print_json({"filesets": found})
        else:
            print_view(View([filesets_table(found)], "there are no filesets"))
        return
    versions = _ask(context, lambda files: _versions(files, name, limit))
    if as_json:
        print_json({"versions": versions})
    else:
        print_view(View([versions_table(versions)], f"there is no fileset {name}"))


async def _filesets(files: Files, limit: int) -> list[d.ShownFileset]:
    found: list[d.ShownFileset] = []
    after: str | None = ""
    while after is not None and len(found) < limit:
        page = await files.client.filesets(after, min(limit - len(found), _PAGE))
        found += page.filesets
        after = page.next
    return found


async def _versions(files: Files, name: str, limit: int) -> list[d.ShownVersion]:
    found: list[d.ShownVersion] = []
    before: int | None = None
    while len(found) < limit:
        page = await files.client.versions(name, before, min(limit - len(found), _PAGE))
        found += page.versions
        before = page.next
        if before is None:
            break
    return found


@filesets.command(
    name="show",
    epilog=examples("longshore filesets show data", "longshore filesets show data@3 --json"),
)
@click.argument("ref", type=Ref())
@click.option(
    "--limit", type=Whole(1, 1_000_000), metavar="N", default=1_000, help="The most files (1000)."
)
@client_options
def show_version(
    context: click.Context, /, ref: tuple[str, int | None], limit: int, as_json: bool, **given: Any
) -> None:
    """Show a version and its files."""
    version, files = _ask(context, lambda client: _files(client, *ref, limit))
    if as_json:
        print_json({"version": version, "files": files})
        return
    head = Text(
        f"{version.fileset}@{version.version}: {_many(version.files, 'file')}, "
        f"{size_words(version.total_bytes)}, {time(version.created_at)}"
        + (f", by {maker(version)}" if maker(version) else "")
        + (", partial" if version.partial else "")
    )
    rest = version.files - len(files)
    more = [Text(f"… and {_many(rest, 'file')} more; --limit shows them")] if rest > 0 else []
    print_view(View([head, files_table(files), *more]))


async def _files(
    files: Files, name: str, number: int | None, limit: int | None = None
) -> tuple[d.ShownVersion, list[d.ShownFile]]:
    """A version, and its files; so many at most, if there is a limit."""
    found: list[d.ShownFile] = []
    after: int | None = 0
    version: d.ShownVersion | None = None
    while version is None or (after is not None and (limit is None or len(found) < limit)):
        size = _PAGE if limit is None else min(limit - len(found), _PAGE)
        page = await files.client.version(name, number, after or 0, size)
        version, after = page.version, page.next
        number = version.version
        found += page.files
    return version, found


@filesets.command(
    name="diff",
    epilog=examples(
        "longshore filesets diff data@1 data@2", "longshore filesets diff data@1 data --json"
    ),
)
@click.argument("before", type=Ref())
@click.argument("after", type=Ref())
@client_options
def diff_versions(
    context: click.Context,
    /,
    before: tuple[str, int | None],
    after: tuple[str, int | None],
    as_json: bool,
    **given: Any,
) -> None:
    """Show which files differ between two versions."""

    async def both(files: Files) -> Changes:
        _, old = await _files(files, *before)
        _, new = await _files(files, *after)
        return _changes(old, new)

    changes = _ask(context, both)
    if as_json:
        keys = ("change", "path", "before", "after")
        print_json({"changes": [dict(zip(keys, one, strict=True)) for one in changes]})
    else:
        print_view(View([changes_table(changes)], "the versions have the same files"))


def _changes(old: list[d.ShownFile], new: list[d.ShownFile]) -> Changes:
    before, after = {one.path: one for one in old}, {one.path: one for one in new}
    found: Changes = []
    for path in sorted(before | after):
        was, now = before.get(path), after.get(path)
        if was != now:
            word = "added" if was is None else "removed" if now is None else "changed"
            found.append((word, path, _size(was), _size(now)))
    return found


def _size(file: d.ShownFile | None) -> int | None:
    return None if file is None else file.size


@filesets.command(
    name="rm",
    epilog=examples("longshore filesets rm data@1 data@2", "longshore filesets rm data --keep 3"),
)
@click.argument("refs", nargs=-1, required=True, type=Ref(), metavar="NAME@VERSION…")
@click.option("--keep", type=Whole(0), metavar="N", help="Remove all but the newest N versions.")
@client_options
def remove_versions(
    context: click.Context,
    /,
    refs: tuple[tuple[str, int | None], ...],
    keep: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Remove versions, except those that live jobs or groups may need.

    A live job needs its inputs, a live group what its jobs have made. With --keep it says which
    versions it left for that reason.

    Their bytes go later, when no version needs them: see `longshore filesets gc`.
    """
    if any((version is None) != (keep is not None) for _, version in refs):
        raise InvalidInput("name versions, like data@3; or filesets, with --keep N")

    gone = _ask(context, lambda files: _remove(files, refs, keep))
    if gone.removed or gone.left or not gone.refused:
        words = f"removed {', '.join(gone.removed)}" if gone.removed else "removed nothing"
        if gone.left:
            words += f"; left {', '.join(gone.left)}: {_NEEDED}"
        print_answer(as_json, {"removed": gone.removed, "left": gone.left}, words)
    if gone.refused:
        raise gone.refused[0]


class _Removal(NamedTuple):
    """What became of versions: those removed, those left in use, and why others were not."""

    removed: list[str]
    left: list[str]
    refused: list[LongshoreError]


async def _remove(
    files: Files, refs: tuple[tuple[str, int | None], ...], keep: int | None
) -> _Removal:
    gone = _Removal([], [], [])
    for name, version in refs:
        numbers = [version] if version is not None else await _older(files, name, keep or 0)
        for number in numbers:
            answer = await files.client.remove(name, number)
            gone.removed.extend(f"{name}@{one}" for one in answer.removed)
            if answer.removed:
                continue
            why = await _why_not_removed(files, name, number)
            if version is not None:
                gone.refused.append(why)
            elif isinstance(why, WrongState):
                gone.left.append(f"{name}@{number}")
    return gone


async def _why_not_removed(files: Files, name: str, number: int) -> LongshoreError:
    """What to say of a version that was named and is not removed."""
    try:
        await files.client.version(name, number, limit=1)
    except NotFound as error:
        return error
    return WrongState(
        f"{name}@{number} is the input of a job that has not ended, or a job of a group that has "
        "not ended made it; remove it when that has ended"
    )


async def _older(files: Files, name: str, keep: int) -> list[int]:
    """The versions of a fileset but the newest ones."""
    return [one.version for one in (await _versions(files, name, _ALL))[keep:]]


@filesets.command(
    name="gc",
    epilog=examples(
        "longshore filesets gc --dry-run",
        "longshore filesets gc",
        "longshore filesets gc --versions --keep 3 --older 30d --dry-run",
    ),
)
@click.option("--dry-run", is_flag=True, help="Remove nothing; say what would go.")
@click.option("--versions", is_flag=True, help="Remove old versions of all filesets instead.")
@click.option("--keep", type=Whole(1), metavar="N", help="How many versions of each stay.")
@click.option(
    "--older",
    metavar="AGE",
    callback=lambda context, parameter, text: text and duration(text),
    help="Only versions that are so old, like 30d.",
)
@client_options
def collect_blobs(
    context: click.Context,
    /,
    dry_run: bool,
    versions: bool,
    keep: int | None,
    older: float | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Remove bytes that no version needs, or versions that nobody uses.

    Dispatchers remove bytes by themselves. What was stored or used within `blob_unused_s` stays,
    and what is to be removed waits for `blob_doomed_s` before its bytes go.

    With --versions it removes all but the newest N of each fileset. The newest that is not partial
    stays, and so do those that live jobs have as inputs, or that jobs of live groups have made.
    Dispatchers do that by themselves if `versions_keep` is set.
    """
    if versions != (keep is not None) or (older is not None and not versions):
        raise InvalidInput("--versions needs --keep N, and --keep and --older need --versions")
    if keep is not None:
        gone = _ask(context, lambda files: _remove_old(files, keep, older or 0.0, dry_run))
        document = {"removed": gone.removed, "left": gone.left, "dry_run": dry_run}
        print_answer(as_json, document, _removal_words(gone, dry_run))
        return
    unused = _ask(context, lambda files: files.client.collect(dry_run=dry_run))
    words = f"{_many(unused.blobs, 'blob')}, {size_words(unused.total_bytes)}, that nothing needs"
    if not dry_run:
        words += f"; removed {_many(unused.removed, 'blob')} now"
    print_answer(as_json, unused, words)


async def _remove_old(files: Files, keep: int, older_s: float, dry_run: bool) -> _Removal:
    """Removes the old versions of all filesets; with `dry_run` it only finds them."""
    gone, now = _Removal([], [], []), datetime.now(UTC)
    for fileset in await _filesets(files, _ALL):
        if fileset.versions <= keep:
            continue
        name = fileset.latest.fileset
        shown = await _versions(files, name, _ALL)
        known = [Known(v.version, v.partial, (now - v.created_at).total_seconds()) for v in shown]
        for number in old_versions(known, keep, older_s):
            is_gone = dry_run or (await files.client.remove(name, number)).removed
            (gone.removed if is_gone else gone.left).append(f"{name}@{number}")
    return gone


def _removal_words(gone: _Removal, dry_run: bool) -> str:
    if not gone.removed and not gone.left:
        return "there are no such versions"
    if dry_run:
        return f"would remove {', '.join(gone.removed)}, except those that somebody needs"
    words = f"removed {', '.join(gone.removed)}" if gone.removed else "removed nothing"
    return f"{words}; left {', '.join(gone.left)}: {_NEEDED}" if gone.left else words

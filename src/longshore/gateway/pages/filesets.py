"""Filesets: the list, the versions of one, the files of a version, what differs between two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import quote

from msgspec import Meta, Struct

from longshore.core.access import Right
from longshore.core.text import size_words
from longshore.errors import LongshoreError, NotFound
from longshore.files.changes import Change
from longshore.gateway.files import (
    changes_since,
    fileset_name,
    version_and_files,
    version_of,
)
from longshore.gateway.models import Number
from longshore.gateway.operation import Call
from longshore.gateway.pages import parts
from longshore.gateway.pages.forms import Dialog, button
from longshore.gateway.pages.html import NOTHING, Html, h, joined
from longshore.gateway.pages.page import Page, Regions, View
from longshore.model.fileset import FileEntry, FilesetVersion, FilesetView

PAGE_FILESETS: Final = 50
PAGE_FILES: Final = 200
_OPEN_FILES: Final = 20
"""A folder with more files is folded."""


class FilesetsQuery(Struct, frozen=True):
    """Which filesets to list."""

    after: str = ""


class Seen(Struct, frozen=True):
    """A page of the list."""

    after: str
    filesets: Sequence[FilesetView]


async def look(call: Call) -> Seen:
    """Asks for a page of filesets."""
    after = call.query(FilesetsQuery).after
    return Seen(after, await call.connection.files.filesets(after, PAGE_FILESETS))


def show(seen: Seen, view: View) -> Regions:
    """The regions of the list."""
    collect = _collect() if view.may(Right.ADMIN) else None
    return {
        "search": parts.heading("Filesets", collect),
        "list": joined(_filesets(seen.filesets, view), _paging(seen, view)),
    }


def _collect() -> Html:
    dialog = Dialog(
        title="Collect what nothing needs",
        words="",
        plan="query",
        done="It is removed within the hour.",
        danger=True,
    )
    return button("Collect unused bytes", "POST", "dispatcher/blobs/gc", dialog)


def _filesets(filesets: Sequence[FilesetView], view: View) -> Html:
    rows = [
        [
            h("a", one.latest.fileset, href=parts.url(view.root, "filesets", one.latest.fileset)),
            parts.number(one.versions),
            _version_link(one.latest, view),
            parts.number(one.latest.files),
            size_words(one.latest.total_bytes),
            _maker(one.latest, view),
            parts.when(one.latest.created_at),
        ]
        for one in filesets
    ]
    heads = ("fileset", "versions#", "newest#", "files#", "size#", "made by", "made")
    empty = "no filesets; `longshore filesets push` makes one"
    return parts.table(heads, rows, "Filesets by name", empty=empty)


def _version_link(one: FilesetVersion, view: View) -> Html:
    where = parts.url(view.root, "filesets", one.fileset, one.version)
    return h("a", str(one.version), href=where)


def _maker(one: FilesetVersion, view: View) -> Html | str:
    if one.job is None:
        return one.by
    return h("a", f"job {str(one.job)[-8:]}", href=parts.url(view.root, "jobs", one.job))


def _paging(seen: Seen, view: View) -> Html:
    links, here = [], f"{view.root}filesets/"
    if seen.after:
        links.append(h("a", "First", href=here, rel="first"))
    if len(seen.filesets) == PAGE_FILESETS:
        more = parts.url("", after=seen.filesets[-1].latest.fileset)
        links.append(h("a", "More", href=here + more, rel="next"))
    return h("nav", links, class_="paging", aria_label="More filesets")


# one fileset


class VersionsQuery(Struct, frozen=True):
    """Which versions to list."""

    before: Number | None = None


class VersionsSeen(Struct, frozen=True):
    """A page of the versions of a fileset."""

    name: str
    before: int | None
    versions: Sequence[FilesetVersion]


async def look_at_versions(call: Call) -> VersionsSeen:
    """Asks for a page of versions; one more tells what the last one may be compared with."""
    name, before = fileset_name(call), call.query(VersionsQuery).before
    found = await call.connection.files.versions(name, before, PAGE_FILESETS + 1)
    if not found and before is None:
        raise NotFound(f"there is no fileset {name!r}; `longshore filesets ls` lists them")
    return VersionsSeen(name, before, found)


def show_versions(seen: VersionsSeen, view: View) -> Regions:
    """The regions of the page of one fileset."""
    title = joined("Fileset ", h("span", seen.name, class_="kind"))
    return {
        "search": parts.heading(title),
        "list": joined(_versions(seen, view), _more_versions(seen, view)),
    }


def _versions(seen: VersionsSeen, view: View) -> Html:
    older = [one.version for one in seen.versions[1:]]
    rows = [
        [
            _version_link(one, view),
            parts.number(one.files),
            size_words(one.total_bytes),
            _maker(one, view),
            parts.when(one.created_at),
            "part of what its job had" if one.partial else None,
            _compare(one, older[at], view) if at < len(older) else None,
            _remove(one) if view.may(Right.ADMIN) else None,
        ]
        for at, one in enumerate(seen.versions[:PAGE_FILESETS])
    ]
    heads = ("version#", "files#", "size#", "made by", "made", "", "compare", " ")
    return parts.table(heads, rows, "Versions, newest first", empty="no more versions")


def _compare(one: FilesetVersion, older: int, view: View) -> Html:
    where = parts.url(view.root, "filesets", one.fileset, one.version, against=older)
    return h("a", f"with {older}", href=where)


def _remove(one: FilesetVersion) -> Html:
    path = f"dispatcher/filesets/{quote(one.fileset, safe='')}/{one.version}"
    words = f"Remove version {one.version} of {one.fileset}?"
    dialog = Dialog(
        title=words,
        words="It stays if a live job has it as its input.",
        done=f"Version {one.version} is removed.",
        danger=True,
    )
    return button("Remove", "DELETE", path, dialog, label=f"Remove version {one.version}")


def _more_versions(seen: VersionsSeen, view: View) -> Html:
    links, here = [], parts.url(view.root, "filesets", seen.name)
    if seen.before is not None:
        links.append(h("a", "Newest", href=here, rel="first"))
    if len(seen.versions) > PAGE_FILESETS:
        last = seen.versions[PAGE_FILESETS - 1].version
        links.append(h("a", "Older", href=here + parts.url("", before=last), rel="next"))
    return h("nav", links, class_="paging", aria_label="More versions")


# one version


class VersionQuery(Struct, frozen=True):
    """Which of its files to list, or with which version to compare it."""

    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    against: Annotated[int, Meta(ge=1, le=2**53)] | None = None


async def look_at(call: Call) -> FilesetVersion:
    """Asks for a version. What it holds never changes."""
    return await version_of(call)


def show_one(one: FilesetVersion, view: View) -> Regions:
    """The regions of the page of one version."""
    name = h("a", one.fileset, href=parts.url(view.root, "filesets", one.fileset))
    title = joined("Fileset ", h("span", name, f" version {one.version}", class_="kind"))
    remove = _remove(one) if view.may(Right.ADMIN) else None
    about = [
        ("files", parts.number(one.files)),
        ("size", size_words(one.total_bytes)),
        ("made", parts.when(one.created_at)),
        ("made by", _maker(one, view)),
        ("partial", "it is part of what its job had" if one.partial else None),
        ("manifest", h("code", one.manifest.hex())),
    ]
    return {
        "head": parts.heading(title, remove),
        "facts": parts.section("Facts", parts.facts(about)),
    }


async def content(call: Call, one: FilesetVersion, view: View) -> Html:
    """Its files, or what differs from another version; why not, if that cannot be read."""
    query = call.query(VersionQuery)
    try:
        if query.against is not None:
            _, found = await changes_since(call, query.against)
            return _changes(one, query.against, found, query.after, view)
        _, manifest = await version_and_files(call)
    except LongshoreError as problem:
        return parts.section("Files", h("p", str(problem), class_="muted"))
    return _files(one, manifest.files, query.after, view)


def _files(one: FilesetVersion, files: Sequence[FileEntry], after: int, view: View) -> Html:
    some = files[after : after + PAGE_FILES]
    folders: dict[str, list[FileEntry]] = {}
    for file in some:
        folders.setdefault(file.path.rpartition("/")[0], []).append(file)
    shown = [_folder(one, name, held, view) for name, held in folders.items()]
    return parts.section(
        "Files",
        shown or h("p", "It has no files.", class_="muted"),
        _more(one, after, len(files), view),
    )


def _folder(one: FilesetVersion, name: str, files: Sequence[FileEntry], view: View) -> Html:
    rows = [
        [
            _file_link(one, file, view),
            size_words(file.size),
            "program" if file.executable else None,
            h("code", file.sha256.hex()[:16]),
        ]
        for file in files
    ]
    words = "in no folder" if not name else f"{name}/"
    body = parts.table(("file", "size#", "", "sha256"), rows, f"Files: {words}")
    if not name:
        return body
    count = h("span", f" {len(files):,} file{'' if len(files) == 1 else 's'}", class_="muted")
    return h("details", h("summary", h("code", words), count), body, open=len(rows) <= _OPEN_FILES)


def _file_link(one: FilesetVersion, file: FileEntry, view: View) -> Html:
    where = parts.url(f"{view.root}dispatcher/filesets/", one.fileset, one.version, "files")
    name = file.path.rpartition("/")[2]
    return h("a", name, href=f"{where}/{quote(file.path, safe='/')}", download=name)


def _changes(
    one: FilesetVersion, against: int, found: Sequence[Change], after: int, view: View
) -> Html:
    rows = [
        [
            parts.state(change.change),
            h("code", change.path),
            None if change.before is None else size_words(change.before),
            None if change.after is None else size_words(change.after),
        ]
        for change in found[after : after + PAGE_FILES]
    ]
    heads = ("change", "file", f"in {against}#", f"in {one.version}#")
    body = parts.table(heads, rows, "What differs", empty="The versions have the same files.")
    here = parts.url(view.root, "filesets", one.fileset, one.version)
    back = h("p", h("a", "all its files", href=here))
    title = f"What differs from version {against}"
    return parts.section(title, body, _more(one, after, len(found), view, against), back)


def _more(
    one: FilesetVersion, after: int, count: int, view: View, against: int | None = None
) -> Html:
    here, links = parts.url(view.root, "filesets", one.fileset, one.version), []
    if after:
        links.append(h("a", "First", href=here + parts.url("", against=against), rel="first"))
    if after + PAGE_FILES < count:
        more = parts.url("", against=against, after=after + PAGE_FILES)
        links.append(h("a", "More", href=here + more, rel="next"))
    if not links:
        return NOTHING
    words = f"{after + 1:,} to {min(count, after + PAGE_FILES):,} of {count:,}"
    note = h("span", words, class_="muted")
    return h("nav", links, note, class_="paging", aria_label="More files")


FILESETS: Final = Page(
    path="/filesets/",
    id="page_filesets",
    title=lambda _: "Filesets",
    look=look,
    show=show,
    query=FilesetsQuery,
)
FILESET: Final = Page(
    path="/filesets/{name}",
    id="page_fileset",
    title=lambda seen: f"Fileset {seen.name}",
    look=look_at_versions,
    show=show_versions,
    query=VersionsQuery,
)
VERSION: Final = Page(
    path="/filesets/{name}/{version}",
    id="page_version",
    title=lambda one: f"Fileset {one.fileset} version {one.version}",
    look=look_at,
    show=show_one,
    once=content,
    query=VersionQuery,
)

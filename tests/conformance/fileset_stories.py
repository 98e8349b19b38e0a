"""Short plays of the machine of filesets: each comes to one guard, and fails if that is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from longshore.model.ends import Succeeded
from longshore.model.fileset import Holder
from longshore.testing.builders import new_id
from longshore.testing.file_builders import a_folder

from .fileset_machine import FilesetMachine

NAME: Final = "a"
ONE, BOTH = a_folder("1"), a_folder("1", "2")
Pair = tuple[Holder, Holder]


def attempt(play: FilesetMachine) -> Pair:
    """The attempt that runs."""
    return play.holders(play.running[0])


def upload(_play: FilesetMachine) -> Pair:
    """A new upload."""
    id = new_id()
    return Holder(id), Holder(id)


def publish(play: FilesetMachine) -> None:
    """The attempt ends, and publishes."""
    play.end_with_a_version(0, NAME, ONE, Succeeded)


def end_without_a_seal(play: FilesetMachine) -> None:
    play.pinned(attempt(play), ONE)
    play.stored(attempt(play), ONE)
    publish(play)


def end_with_the_seal_of_another(play: FilesetMachine) -> None:
    play.store_all(upload(play), ONE)
    play.pinned(attempt(play), ONE)
    publish(play)


def seal_before_the_upload(play: FilesetMachine) -> None:
    play.pinned(attempt(play), ONE)
    play.sealed(attempt(play), ONE)


def lost_attempt(play: FilesetMachine) -> Pair:
    """An attempt that has stored all, and then its job was given to another."""
    old = attempt(play)
    play.pinned(old, ONE)
    play.stored(old, ONE)
    play.begin_another_attempt(0)
    return old


def late_pin(play: FilesetMachine) -> None:
    play.pinned(lost_attempt(play), BOTH)


def late_note(play: FilesetMachine) -> None:
    play.stored(lost_attempt(play), ONE)


def late_seal(play: FilesetMachine) -> None:
    play.sealed(lost_attempt(play), ONE)


def late_end(play: FilesetMachine) -> None:
    play.sealed(attempt(play), ONE)
    play.store_all(attempt(play), ONE)
    play.begin_another_attempt(0)
    play.end_too_late(0, NAME, ONE)


def shared_blob(play: FilesetMachine) -> None:
    """One of two versions that have it goes."""
    play.push(NAME, ONE)
    play.push(NAME, BOTH)
    play.remove_version(NAME, 1)
    play.collect()


def doomed_blob(play: FilesetMachine) -> None:
    """Nothing needs it, and somebody is about to remove its bytes."""
    play.push(NAME, ONE)
    play.remove_version(NAME, 1)
    play.collect()


def pin_of_a_doomed_blob(play: FilesetMachine) -> None:
    doomed_blob(play)
    play.store_all(attempt(play), ONE)
    play.remove_bytes()
    publish(play)


def note_of_an_old_generation(play: FilesetMachine) -> None:
    doomed_blob(play)
    play.store_it_under_an_old_generation(0, ONE)


def slow_removal(play: FilesetMachine) -> None:
    doomed_blob(play)
    play.push(NAME, ONE)
    play.remove_bytes()


def removal_of_an_input(play: FilesetMachine) -> None:
    play.push(NAME, ONE)
    play.read(0, NAME, None)
    play.begin_another_attempt(0)
    play.remove_version(NAME, 1)


def input_of_two_attempts(play: FilesetMachine) -> None:
    play.push(NAME, ONE)
    play.read(0, NAME, None)
    play.push(NAME, BOTH)
    play.begin_another_attempt(0)
    play.read(0, NAME, None)


def repeated_end(play: FilesetMachine) -> None:
    play.store_all(attempt(play), ONE)
    publish(play)
    play.repeat_an_end(0)


def collection_before_the_end(play: FilesetMachine) -> None:
    play.store_all(attempt(play), ONE)
    play.collect()
    publish(play)


def collection_after_a_push(play: FilesetMachine) -> None:
    """The pin of the upload goes, the version stays."""
    play.push(NAME, ONE)
    play.collect()


def collection_of_another_pin(play: FilesetMachine) -> None:
    """An upload is given up whose manifest an attempt holds, too."""
    play.store_all(attempt(play), ONE)
    play.store_all(upload(play), ONE)
    play.collect()
    publish(play)


STORIES: Final[tuple[Callable[[FilesetMachine], object], ...]] = (
    end_without_a_seal,
    end_with_the_seal_of_another,
    seal_before_the_upload,
    late_pin,
    late_note,
    late_seal,
    late_end,
    shared_blob,
    pin_of_a_doomed_blob,
    note_of_an_old_generation,
    slow_removal,
    removal_of_an_input,
    input_of_two_attempts,
    repeated_end,
    collection_before_the_end,
    collection_after_a_push,
    collection_of_another_pin,
)

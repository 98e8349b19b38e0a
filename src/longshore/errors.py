"""The errors Longshore raises, and who is at fault.

    LongshoreError
    ├── InvalidInput            the caller's: an input that cannot be accepted
    │   ├── InvalidArguments    a job's arguments do not fit its parameters
    │   ├── NotSerialisable     a value that cannot be stored
    │   ├── TooLarge            a value past a named limit
    │   ├── ConfigError         a setting, URL, flag or variable
    │   ├── AppError            the app module cannot be loaded
    │   └── UnknownKind         strict submit of a kind that no worker serves
    ├── WouldBlock              a blocking call inside an event loop
    ├── Conflict                the same id, with another body
    ├── NotFound                no such job, worker or actor
    ├── NotAuthenticated        no token, or none that is known, and one is needed
    ├── NotAllowed              who asks may not do this
    ├── WrongState              the job or the actor is not in a state that allows this
    ├── Unavailable             try again: nothing is wrong with the request
    │   ├── StoreUnavailable    the database does not answer
    │   │   └── StoreLost       it never will again: its file is gone, damaged or read-only
    │   ├── DispatcherUnavailable   no dispatcher answers
    │   ├── DiskFull            no room is left where files are stored
    │   └── UploadBusy          another request uploads the same bytes now
    ├── Damaged                 stored bytes are not those that were stored
    ├── SchemaMismatch          the database was made by another version
    ├── AddressInUse            a port is taken
    ├── ProtocolError           a peer sent a message that the protocol does not allow
    ├── NotFinished             waiting for an outcome took too long
    ├── AskFailed               an actor answered an ask with an error
    └── JobUnsuccessful         the job ended without success
        ├── JobFailed
        └── JobCancelled

Every message says what happened, to what, and what to do next. `code` is the word for the error on
the wire and in JSON; `exit_code` is what the command line exits with.
"""

from __future__ import annotations

from typing import ClassVar


class LongshoreError(Exception):
    """Everything Longshore raises on purpose is one of these."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1


class InvalidInput(LongshoreError, ValueError):
    """An input that cannot be accepted; giving it again will not help.

    Change what the message names.
    """

    code = "invalid_input"
    exit_code = 2


class InvalidArguments(InvalidInput):
    """A job's arguments do not fit its parameters.

    The message names the parameter, and what it takes.
    """

    code = "invalid_arguments"


class NotSerialisable(InvalidInput):
    """A value cannot be stored.

    Use builtin types, dataclasses or msgspec Structs, and annotate the parameter with them.
    """

    code = "not_serialisable"


class TooLarge(InvalidInput):
    """A value is past a named limit.

    Keep large data in a file or an object store and pass its name, or raise the limit.
    """

    code = "too_large"


class ConfigError(InvalidInput):
    """A setting, URL, flag or variable is wrong.

    The message says where it was set; docs/configuration.md lists all of them.
    """

    code = "config"


class AppError(InvalidInput):
    """The app module cannot be loaded.

    Correct the module, or name another: `--app module:app`, as seen from the current folder.
    """

    code = "app"


class UnknownKind(InvalidInput):
    """No known worker serves this kind, and the submit was strict.

    Start a worker that has it, or submit without `strict`: then the job waits for one.
    """

    code = "unknown_kind"


class WouldBlock(LongshoreError, RuntimeError):
    """A blocking call was made in an event loop, which it would stop.

    Await the method of the same name that ends in `_async`.
    """

    code = "would_block"


class Conflict(LongshoreError):
    """Something else has this id, key, name or address already.

    Use another one; to repeat a submit, submit the same call again. For an actor: `get_or_start`.
    """

    code = "conflict"
    exit_code = 2


class NotFound(LongshoreError, LookupError):
    """There is no such job, worker or actor.

    Look at `longshore jobs`, `workers` or `actors`; ended jobs are removed after a while.
    """

    code = "not_found"
    exit_code = 3


class NotAuthenticated(LongshoreError):
    """A token is needed, and none came, or one that is unknown, expired or revoked.

    Send `Authorization: Bearer ls_…`; `longshore token create` makes a token.
    """

    code = "not_authenticated"
    exit_code = 2


class NotAllowed(LongshoreError):
    """Who asks may not do this.

    The message says what is missing: another role, or a scope that reaches further.
    """

    code = "not_allowed"
    exit_code = 2


class WrongState(LongshoreError):
    """The job or the actor is not in a state that allows this.

    The message says which it is in; `longshore why JOB` or `longshore actor why` says why.
    """

    code = "wrong_state"
    exit_code = 2


class Unavailable(LongshoreError, ConnectionError):
    """The request is sound, and may succeed later.

    Try again; a repeated submit of one id, or of one call, is still one job.
    """

    code = "unavailable"
    exit_code = 4


class StoreUnavailable(Unavailable):
    """The database does not answer; it may or may not have committed the last request.

    Try again once it does. Every request may be repeated.
    """

    code = "store_unavailable"


class StoreLost(StoreUnavailable):
    """The store's file was deleted, replaced or damaged, or has become read-only.

    The dispatcher ends, and has accepted nothing since. Restore the file, then start it again.
    """

    code = "store_lost"


class DispatcherUnavailable(Unavailable):
    """No dispatcher answers.

    Start one, or correct the address (`connect`) or the keys; then try again.
    """

    code = "dispatcher_unavailable"


class DiskFull(Unavailable):
    """No room is left where files are stored.

    Make room there, or remove old versions: `longshore filesets rm`, then `longshore filesets gc`.
    """

    code = "disk_full"


class UploadBusy(Unavailable):
    """Another request uploads the same bytes now.

    Ask again how far they came, and go on from there.
    """

    code = "upload_busy"


class Damaged(LongshoreError):
    """The stored bytes are not those that were stored: the disk, or somebody, changed them.

    Restore the blob that the message names from a backup of `files`.
    """

    code = "damaged"


class SchemaMismatch(LongshoreError):
    """The database's schema is not the one this version works with.

    Run `longshore migrate`; a schema that is newer needs a newer Longshore.
    """

    code = "schema_mismatch"
    exit_code = 2


class AddressInUse(LongshoreError):
    """Another process has this port or address.

    Stop that process, or listen elsewhere; port 0 is any that is free.
    """

    code = "address_in_use"
    exit_code = 2


class ProtocolError(LongshoreError):
    """A peer sent a message that the protocol does not allow.

    Check that both sides run versions that fit, and that the port is the right one.
    """

    code = "protocol"


class NotFinished(LongshoreError, TimeoutError):
    """The job did not end within the time allowed.

    Wait again: the job goes on.
    """

    code = "not_finished"
    exit_code = 5


class AskFailed(LongshoreError):
    """An actor answered an ask with an error, or was stopped before it could answer.

    The message says which. Correct what was asked, or start the actor again.
    """

    code = "ask_failed"


class JobUnsuccessful(LongshoreError):
    """The job ended without success.

    `longshore why JOB` says how; `longshore retry JOB` runs it again.
    """

    code = "job_unsuccessful"


class JobFailed(JobUnsuccessful):
    """The job failed; `type`, `reason` and `traceback` say how.

    Remove the cause, then run it again: `handle.retry()`.
    """

    code = "job_failed"

    def __init__(
        self, message: str, *, reason: str = "raised", type: str = "", traceback: str = ""
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.type = type
        self.traceback = traceback


class JobCancelled(JobUnsuccessful):
    """The job was cancelled before it could succeed.

    Run it again, if that was a mistake: `handle.retry()`.
    """

    code = "job_cancelled"


def _tree(root: type[LongshoreError]) -> dict[str, type[LongshoreError]]:
    # A class without a code of its own is raised as one that has: over the wire it is that one.
    found = {root.code: root} if "code" in vars(root) else {}
    for child in root.__subclasses__():
        found.update(_tree(child))
    return found


def from_code(code: str, message: str) -> LongshoreError:
    """The error of the class that a code names, for an error that came over the wire."""
    return _tree(LongshoreError).get(code, LongshoreError)(message)

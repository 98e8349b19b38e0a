"""Longshore: a job accepted is a job finished, its outcome recorded once, whatever dies."""

from longshore import errors
from longshore._version import __version__
from longshore.client.actor import ActorRef, ActorType
from longshore.client.actor_class import reads, when
from longshore.client.actor_context import ActorContext, Answer, Failure, Outcome, Undelivered
from longshore.client.app import App
from longshore.client.asgi import asgi
from longshore.client.batch import Batch
from longshore.client.debounce import Debounce
from longshore.client.group import GroupBuilder, GroupJob, GroupMap, SubGroup
from longshore.client.group_handle import GroupHandle
from longshore.client.handle import Handle
from longshore.client.kind import Call, Kind
from longshore.client.limit import Limit
from longshore.client.rules import exit, lost, oom, output_missing, signal, timed_out
from longshore.client.sending import MessageCall
from longshore.client.signature import GIVEN
from longshore.executors.host.context import (
    Cancelled,
    Context,
    Fail,
    Retry,
    Skip,
    Snooze,
    current,
)
from longshore.model.actor import ActorStatus
from longshore.model.group import GroupState
from longshore.model.job import JobState, RetryPolicy, Scheduled
from longshore.model.program import Input, Output

__all__ = [
    "GIVEN",
    "ActorContext",
    "ActorRef",
    "ActorStatus",
    "ActorType",
    "Answer",
    "App",
    "Batch",
    "Call",
    "Cancelled",
    "Context",
    "Debounce",
    "Fail",
    "Failure",
    "GroupBuilder",
    "GroupHandle",
    "GroupJob",
    "GroupMap",
    "GroupState",
    "Handle",
    "Input",
    "JobState",
    "Kind",
    "Limit",
    "MessageCall",
    "Outcome",
    "Output",
    "Retry",
    "RetryPolicy",
    "Scheduled",
    "Skip",
    "Snooze",
    "SubGroup",
    "Undelivered",
    "__version__",
    "asgi",
    "current",
    "errors",
    "exit",
    "lost",
    "oom",
    "output_missing",
    "reads",
    "signal",
    "timed_out",
    "when",
]

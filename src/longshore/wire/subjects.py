"""The requests of clients that have files of their own, by what they are about (see `messages`)."""

from __future__ import annotations

from typing import Any, Final

from longshore.wire.access_messages import ACCESS_ANSWERS, AccessRequest
from longshore.wire.actor_messages import ACTOR_ANSWERS, ActorRequest
from longshore.wire.bulk_messages import BULK_ANSWERS, BulkRequest
from longshore.wire.file_messages import FILE_ANSWERS, FileRequest
from longshore.wire.limit_messages import LIMIT_ANSWERS, LimitRequest
from longshore.wire.schedule_messages import SCHEDULE_ANSWERS, ScheduleRequest
from longshore.wire.web_messages import WEB_ANSWERS

SubjectRequest = (
    ActorRequest | AccessRequest | FileRequest | ScheduleRequest | LimitRequest | BulkRequest
)

SUBJECT_ANSWERS: Final[dict[type, Any]] = {
    **ACTOR_ANSWERS,
    **WEB_ANSWERS,
    **ACCESS_ANSWERS,
    **FILE_ANSWERS,
    **SCHEDULE_ANSWERS,
    **LIMIT_ANSWERS,
    **BULK_ANSWERS,
}

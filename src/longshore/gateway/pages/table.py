"""The table of all pages. To add one, add a row, and a file with what it looks at and shows."""

from __future__ import annotations

from typing import Final

from longshore.gateway.operation import Operation
from longshore.gateway.pages.access import AUDIT, TOKENS
from longshore.gateway.pages.actor import ACTOR
from longshore.gateway.pages.actors import ACTORS
from longshore.gateway.pages.dispatchers import DISPATCHERS
from longshore.gateway.pages.filesets import FILESET, FILESETS, VERSION
from longshore.gateway.pages.group import GROUP
from longshore.gateway.pages.groups import GROUPS
from longshore.gateway.pages.job import JOB
from longshore.gateway.pages.jobs import JOBS
from longshore.gateway.pages.limits import LIMITS
from longshore.gateway.pages.overview import OVERVIEW
from longshore.gateway.pages.page import AnyPage
from longshore.gateway.pages.queues import QUEUES
from longshore.gateway.pages.schedules import SCHEDULE, SCHEDULES
from longshore.gateway.pages.sign_in import SIGN_IN
from longshore.gateway.pages.static import STATIC
from longshore.gateway.pages.workers import WORKER, WORKERS

PAGES: Final[tuple[AnyPage, ...]] = (
    OVERVIEW,
    JOBS,
    JOB,
    GROUPS,
    GROUP,
    ACTORS,
    ACTOR,
    SCHEDULES,
    SCHEDULE,
    QUEUES,
    LIMITS,
    WORKERS,
    WORKER,
    DISPATCHERS,
    FILESETS,
    FILESET,
    VERSION,
    TOKENS,
    AUDIT,
)
PAGE_OPERATIONS: Final[tuple[Operation, ...]] = (
    *(page.operation() for page in PAGES),
    STATIC,
    *SIGN_IN,
)

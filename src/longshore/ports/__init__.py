"""The ports: what the engine needs of a store, a link, an executor and a clock.

`store.py` has the verbs of a store, `group_store.py`, `actor_store.py`, `access_store.py`,
`web_store.py`, `file_store.py`, `schedule_store.py`, `limit_store.py` and `bulk_store.py` those
about groups, actors, tokens, web workers, filesets, schedules, limits and bulks;
`files.py` has what programs need of filesets; `processes.py` has the rest.
"""

from longshore.model.batch import Batch as Batch  # stores and dispatchers take them from here
from longshore.model.batch import BatchResult as BatchResult
from longshore.model.upkeep import Harvested as Harvested
from longshore.model.upkeep import Promoted as Promoted
from longshore.model.upkeep import Settled as Settled
from longshore.model.upkeep import Tended as Tended
from longshore.model.upkeep import Told as Told
from longshore.ports.access_store import AccessStore as AccessStore
from longshore.ports.actor_store import ActorStore as ActorStore
from longshore.ports.file_store import FileStore as FileStore
from longshore.ports.group_store import GroupStore as GroupStore
from longshore.ports.processes import App as App
from longshore.ports.processes import BeginsLate as BeginsLate
from longshore.ports.processes import Clock as Clock
from longshore.ports.processes import Executor as Executor
from longshore.ports.processes import GathersBatches as GathersBatches
from longshore.ports.processes import Handler as Handler
from longshore.ports.processes import Handlers as Handlers
from longshore.ports.processes import HasEnded as HasEnded
from longshore.ports.processes import Link as Link
from longshore.ports.processes import OnBegun as OnBegun
from longshore.ports.processes import OnLog as OnLog
from longshore.ports.processes import OnLost as OnLost
from longshore.ports.processes import OnMessages as OnMessages
from longshore.ports.processes import OnReport as OnReport
from longshore.ports.processes import ProgramHandler as ProgramHandler
from longshore.ports.processes import QueueingExecutor as QueueingExecutor
from longshore.ports.processes import ResumingExecutor as ResumingExecutor
from longshore.ports.processes import WorkerState as WorkerState
from longshore.ports.schedule_store import ScheduleStore as ScheduleStore
from longshore.ports.store import Hint as Hint
from longshore.ports.store import Store as Store
from longshore.ports.web_store import WebStore as WebStore

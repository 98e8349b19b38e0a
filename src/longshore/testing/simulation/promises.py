"""The promises that the simulation watches, and what is raised when one is broken."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID


class Promise(StrEnum):
    """What Longshore promises, as far as a simulation can see it."""

    DURABLE = "G1 accepted is durable"
    ONE_OWNER = "G2 one owner"
    ONE_OUTCOME = "G3 one outcome"
    NO_SILENCE = "G4 no silence"
    ORDER = "G5 order"
    SELF_STOP = "G6 self-stop"
    ACTORS = "G7 actors"
    NO_SPECIAL_PROCESS = "G8 no special process"
    FAIR = "nothing waits in a worker while another is idle"
    BLAME = "a loss blames no more jobs than could run"
    ATTENDED = "one gateway attends a web worker, and nobody takes it away"
    HEEDED = "a web worker without room is left alone until it answers again"
    IN_TIME = "a job begins before its deadline, or fails after it"
    UNIQUE = "a unique key has one live job"
    LIMITS = "never above a limit"
    SLOTS = "the slots of a lost worker return with its lease"
    ROOM = "who waits for a limit goes on when there is room"
    FATES = "every nominal time has one fate"
    AGREEMENT = "in calm everybody agrees"
    SOUND = "nothing happens that nobody foresaw"


class BrokenPromise(Exception):
    """A promise was broken: which, how, and with which job."""

    def __init__(self, promise: Promise, text: str, job: UUID | None = None) -> None:
        super().__init__(f"{promise}: {text}")
        self.promise = promise
        self.text = text
        self.job = job

"""What the engine needs of a store for actors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from longshore.model.actor import (
    Actor,
    ActorFilter,
    ActorPage,
    ActorVerdict,
    Delivered,
    MailAction,
    MailView,
    NewActor,
    Reply,
    Started,
    TurnView,
    UndeliveredSend,
)
from longshore.model.batch import Batch as Batch  # stores and dispatchers take them from here
from longshore.model.batch import BatchResult as BatchResult
from longshore.model.job import (
    Refused,
)
from longshore.model.upkeep import Harvested as Harvested
from longshore.model.upkeep import Promoted as Promoted
from longshore.model.upkeep import Settled as Settled
from longshore.model.upkeep import Tended as Tended


class ActorStore(Protocol):
    """The verbs of a store about actors. `pump` takes their turns and the messages to them."""

    async def start_actors(
        self, actors: Sequence[NewActor], *, reuse: bool = False
    ) -> list[Started | Refused]:
        """Starts actors, each with its first turn; answers item by item.

        A key that an actor of that type has is refused, or with `reuse` answered with that actor.
        A repeat of an id changes nothing.
        """

    async def callback_secret(self) -> bytes:
        """The secret of this store from which the keys for callback tokens follow."""

    async def replies(self, ids: Sequence[UUID]) -> list[Reply]:
        """The replies to these asks from outside, as far as there are any; kept for an hour."""

    async def pause_actor(self, type: str, key: str, paused: bool) -> ActorVerdict:
        """Pauses an actor after the turn that runs, or resumes it; a failed one too."""

    async def stop_actor(self, type: str, key: str, by: str = "") -> ActorVerdict:
        """Removes an actor with its mailbox and timers; who asked it something hears of that.

        A turn that runs is stopped first: then `tend_actors` removes the actor after it.
        """

    async def edit_actor(
        self,
        type: str,
        key: str,
        state: bytes,
        version: int,
        *,
        turn: int | None = None,
        restart: bool = False,
        listed: Mapping[str, str] | None = None,
    ) -> ActorVerdict:
        """Replaces the state of an actor between two turns, as a turn of its own.

        With `turn`, only if that is its last one. With `restart`, the timers go too, and the actor
        gets the event of its start again. It is listed by `listed`, if that is given. An actor
        whose turn failed goes on with the new state.
        """

    async def sort_mail(self, type: str, key: str, number: int, action: MailAction) -> ActorVerdict:
        """Parks a message, so that it is passed over, puts it back or drops it.

        Not while a turn runs, which may have read it. A message that is put back is due at once,
        as a delayed one is.
        """

    async def tend_actors(self, most: int = 1000) -> Tended:
        """Removes actors that were stopped while a turn ran, and forgets old ids of messages."""

    async def deliver_sends(self, most: int = 1000) -> Delivered:
        """Puts messages that applications committed into their mailboxes, in their order.

        Each arrives once, whatever dies. Nobody can refuse it any more: a full mailbox takes it,
        and one to nobody is kept, with the reason.
        """

    async def undelivered_sends(self, most: int = 100) -> list[UndeliveredSend]:
        """The first messages of applications that could not be delivered, the oldest first."""

    async def sort_undelivered(self, id: UUID, *, again: bool) -> bool:
        """Has such a message delivered again, or drops it; whether it was there."""

    async def actor(self, type: str, key: str) -> Actor | None:
        """One actor, as its last turn left it. Takes no lock."""

    async def actors(self, wanted: ActorFilter) -> ActorPage:
        """Actors by type and key, without their states.

        A store looks at `MOST_LOOKED_AT` actors at most, and then answers with what it found.
        """

    async def turns(self, type: str, key: str) -> list[TurnView]:
        """The last turns of an actor, the newest first."""

    async def mail(self, type: str, key: str, most: int = 100) -> list[MailView]:
        """The first messages that an actor has not read, parked ones too."""

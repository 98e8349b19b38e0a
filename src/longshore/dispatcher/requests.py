"""Decodes and counts the requests of clients, passes them to the service, answers each once."""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence
from typing import Final, get_args

from longshore.core.access import LOCAL, Asker
from longshore.dispatcher.access import Access, audit_entry, shown_to
from longshore.dispatcher.access_service import perform_for_access
from longshore.dispatcher.actor_service import Caller, perform_for_actors
from longshore.dispatcher.budgets import RequestBudgets
from longshore.dispatcher.bulk_service import perform_for_bulks
from longshore.dispatcher.dropped import DroppedMessages
from longshore.dispatcher.environment import Environment
from longshore.dispatcher.file_service import perform_for_files
from longshore.dispatcher.limit_service import perform_for_limits
from longshore.dispatcher.own_lease import OwnLease
from longshore.dispatcher.plain_clients import PlainClients
from longshore.dispatcher.schedule_service import perform_for_schedules
from longshore.dispatcher.service import Service
from longshore.dispatcher.sessions.link import Listen
from longshore.dispatcher.tasks import Tasks
from longshore.dispatcher.web_service import WebService
from longshore.errors import InvalidInput, LongshoreError, ProtocolError, StoreUnavailable, TooLarge
from longshore.model.access import Role
from longshore.model.job import Ended
from longshore.ports import Link
from longshore.wire import access_messages as t
from longshore.wire import actor_messages as a
from longshore.wire import messages as m
from longshore.wire.access_messages import ON_BEHALF, unwrapped
from longshore.wire.bulk_messages import BulkRequest
from longshore.wire.codec import encode, from_client, ok, request_number
from longshore.wire.file_messages import BlobRequest, FileRequest
from longshore.wire.limit_messages import LimitRequest
from longshore.wire.portions import MAX_MESSAGE_BYTES, portions
from longshore.wire.reports import error_bytes
from longshore.wire.schedule_messages import ScheduleRequest
from longshore.wire.web_messages import WebRequest

log = logging.getLogger("longshore.dispatcher")

Performed = m.ClientRequest | BlobRequest
"""What the service does. Gateways' requests about web workers are another service's."""

_USUAL: Final = (m.Submit, a.Send, m.Wait)
"""To ask first for what comes most: for each class that it is not, a message takes 0.2 µs."""
_OF_GATEWAYS: Final = frozenset([*get_args(WebRequest), *get_args(BlobRequest)])
_OfFiles = FileRequest | BlobRequest

MAX_ANSWER_BYTES = 16 * 1024 * 1024


class Requests:
    """Hears all messages of clients; answers each request once, with OK or ERR."""

    def __init__(
        self,
        environment: Environment,
        own_lease: OwnLease,
        service: Service,
        plain: PlainClients,
        access: Access,
        web: WebService,
        gateway_keys: Container[str] = (),
    ) -> None:
        self._service = service
        self._access = access
        self._web = web
        self._gateway_keys = gateway_keys
        self._own_lease = own_lease
        self._plain = plain
        self._junk = DroppedMessages(environment.clock, "clients")
        self._tasks = Tasks()
        self._underway = RequestBudgets(environment.settings)
        self._link: Link

    def listen(self, listen: Listen, address: str) -> Link:
        """Listens for clients at this address, until the link is closed."""
        self._link = listen(address, self.receive)
        return self._link

    def receive(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        """Messages came from clients."""
        for peer, frames in arrived:
            # One by one: a bad message must not cost other peers their answers.
            try:
                if len(frames) == 2:
                    self._plain.receive(self._link, peer, frames)
                else:
                    self._begin(peer, frames)
            except ProtocolError as error:
                self._refuse_junk(peer, frames, error)
            except Exception:
                self._junk.failed(peer)

    def _begin(self, peer: bytes, frames: Sequence[bytes]) -> None:
        token: bytes | None = None
        if len(frames) == 3 and frames[1] == ON_BEHALF:
            token, frames = unwrapped(frames)
        request = from_client.decode(frames)
        # Later nobody knows the key any more.
        key = self._link.key_of(peer)
        try:
            self._check_caller(key, request)
            if token is not None:
                self._access.check_may_name(key)
            self._underway.begin(peer, request)
        except LongshoreError as error:
            self._send(peer, failed(request.rid, error))
        else:
            self._tasks.start(self._answer(peer, request, self._access.of_key(key), token))

    def _check_caller(self, key: str, request: m.Request) -> None:
        """Only gateways speak for web workers, and of blobs.

        Without keys, whoever may connect may do all.
        """
        if type(request) in _OF_GATEWAYS and key and key not in self._gateway_keys:
            raise InvalidInput(
                f"{type(request).__name__.upper()} is for gateways; add the caller's public key "
                "file to curve_gateways of the dispatchers"
            )

    def _refuse_junk(self, peer: bytes, frames: list[bytes], error: ProtocolError) -> None:
        # A peer that numbers its requests hears what was wrong; any other is ignored.
        self._junk.dropped(peer, error)
        rid = request_number(frames)
        if rid is not None:
            self._send(peer, failed(rid, error))

    async def _answer(
        self, peer: bytes, request: m.Request, asker: Asker, token: bytes | None
    ) -> None:
        try:
            if token is not None:
                answer = await self._perform_for(token, request)
            elif not isinstance(request, _USUAL) and isinstance(request, WebRequest):
                answer = await self._web.perform(request)
            else:
                answer = await perform(self._asked_by(asker, request), request, Caller(peer))
            frames = _within_the_limit(request, ok(request.rid, answer))
        except StoreUnavailable as error:
            self._own_lease.saw_outage(error)
            frames = failed(request.rid, error)
        except LongshoreError as error:
            frames = failed(request.rid, error)
        except Exception:
            log.exception("a request failed unexpectedly: %r", type(request))
            broken = LongshoreError("the dispatcher failed to answer; its log says why")
            frames = failed(request.rid, broken)
        finally:
            self._underway.end(peer, request)
        self._send(peer, frames)

    async def _perform_for(self, token: bytes, request: m.Request) -> object:
        """Does what the holder of a token asks for, as far as the token allows it."""
        asker = await self._access.tokens.asker(token)
        request = await self._access.judged(asker, request)
        if isinstance(request, WebRequest):
            # Gateways name the principal of a registration by the hash of the token.
            principal = None if asker.role is Role.ADMIN else token.hex()
            return await self._web.perform(request, principal)
        service = self._asked_by(asker, request)
        answer = await perform(service, request, Caller(token))
        if isinstance(request, m.Submit):
            return await self._access.submitted(asker, request, answer)
        return shown_to(asker, request, answer)

    def _asked_by(self, asker: Asker, request: m.Request) -> Service:
        entry = audit_entry(asker, request)
        if entry is None and asker is LOCAL:
            return self._service
        return self._service.asked_by(asker, entry)

    def _send(self, peer: bytes, frames: list[bytes]) -> None:
        # A client that is gone or too slow asks again later.
        self._link.send(peer, frames)

    async def close(self) -> None:
        """Stops all requests; their clients ask another dispatcher."""
        await self._tasks.cancel()
        await self._access.tokens.close()


async def perform(service: Service, request: Performed, caller: Caller) -> object:
    """Does what a request asks for; answers with what OK carries."""
    match request:
        case m.Submit():
            return await service.submit(request, caller)
        case m.Wait():
            return _within_a_message(await service.wait(request))
        case a.Send():
            return await service.actors.send(request)
        case m.Show():
            return await service.job(request.job)
        case m.Why():
            return await service.why(request)
        case m.ReadLogs():
            return await service.logs(request)
        case m.ListJobs():
            return await service.jobs(request)
        case m.Cancel():
            return await service.cancel(request)
        case m.Retry():
            return await service.retry(request)
        case m.SubmitGroup():
            return await service.submit_group(request, caller)
        case m.AddToGroup():
            return await service.add_to_group(request, caller)
        case m.ShowGroup():
            return await service.group(request.group)
        case m.ListGroups():
            return await service.groups(request)
        case m.ListNodes():
            return await service.nodes(request)
        case m.CancelGroup():
            return await service.cancel_group(request)
        case m.PauseGroup():
            return await service.pause_group(request)
        case m.RetryGroup():
            return await service.retry_group(request)
        case m.RerunGroup():
            return await service.rerun_group(request)
        case m.OpenGate():
            return await service.open_gate(request)
        case m.ListWorkers():
            return await service.workers()
        case m.Drain():
            return await service.drain(request)
        case m.ListDispatchers():
            return await service.dispatchers()
        case m.ShowCapacity():
            return await service.capacity()
        case m.ShowKind():
            return await service.kind(request.kind)
        case m.ListRunTimes():
            return await service.run_times(request)
        case m.ListQueues():
            return await service.queues()
        case m.ListLanes():
            return await service.lanes()
        case m.Pause():
            await service.pause(request)
            return None
        case m.Prune():
            return await service.prune(request)
        case m.Hello():
            return await service.hello()
        case t.CreateToken() | t.RevokeToken() | t.ListTokens() | t.ListAudit() | t.ShowAsker():
            return await perform_for_access(service.access, request)
        case _:
            return await _perform_for_subjects(service, request, caller)


async def _perform_for_subjects(
    service: Service,
    request: (
        a.ActorRequest
        | FileRequest
        | BlobRequest
        | ScheduleRequest
        | LimitRequest
        | BulkRequest
        | m.AwaitChange
    ),
    caller: Caller,
) -> object:
    """What OK carries in answer to a request about one of the subjects with files of their own."""
    match request:
        case m.AwaitChange():
            return await service.next_change(request)
        case request if isinstance(request, _OfFiles):
            return await perform_for_files(service.files, request)
        case request if isinstance(request, ScheduleRequest):
            return await perform_for_schedules(service.schedules, request, caller)
        case request if isinstance(request, LimitRequest):
            return await perform_for_limits(service.limits, request)
        case request if isinstance(request, BulkRequest):
            return await perform_for_bulks(service.bulks, request)
        case _:
            return await perform_for_actors(service.actors, request, caller)


def failed(rid: int, error: LongshoreError) -> list[bytes]:
    """The frames that say why a request was refused."""
    return encode(m.Err(rid, error.code, str(error)))


def _within_a_message(ended: list[Ended]) -> Sequence[Ended]:
    """As many outcomes as fit into one message. The client asks for the rest again."""
    return next(portions(ended, _outcome_bytes, MAX_ANSWER_BYTES), ())


def _outcome_bytes(ended: Ended) -> int:
    return len(ended.result or b"") + (error_bytes(ended.error) if ended.error else 0)


def _within_the_limit(request: m.Request, frames: list[bytes]) -> list[bytes]:
    """The answer, unless it is so large that the client would drop the connection."""
    if (size := len(frames[-1])) > MAX_MESSAGE_BYTES:
        raise TooLarge(
            f"the answer to {type(request).__name__.upper()} takes {size:,} bytes, more than the "
            f"{MAX_MESSAGE_BYTES:,} of a message; ask for less at a time"
        )
    return frames

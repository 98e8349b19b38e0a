"""`MapHandle`: the handle of a map, whose result is that of its jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from longshore.client.clients import Clients
from longshore.client.handle import Awaited, Handle, Unpack, all_ended_async, unsuccessful
from longshore.errors import NotFound
from longshore.model.group import MAP, NodeView
from longshore.model.job import Ended, Job, JobState

R = TypeVar("R")


class MapHandle(Handle[list[R]]):
    """One map of a group. `wait` ends when its list became jobs, `result` when these have ended."""

    def __init__(
        self,
        access: Clients,
        id: UUID,
        unpacker: Callable[[Job], Unpack[R]],
        called: str,
        known: dict[UUID, Ended],
    ) -> None:
        super().__init__(access, id, 0, MAP, _nothing, called=called, known=known, in_group=True)
        self._of_element = unpacker

    async def result_async(self, timeout_s: float | None = None) -> list[R]:
        """Waits for what the jobs of the map return, in the order of its list.

        Raises `JobFailed` or `JobCancelled` if the map, or one of its jobs, ends otherwise, and
        `NotFinished` if they do not end within `timeout_s`.
        """
        loop = asyncio.get_running_loop()
        until = None if timeout_s is None else loop.time() + timeout_s
        await super().result_async(timeout_s)
        nodes = await self._elements()
        left_s = None if until is None else max(0.0, until - loop.time())
        ended: dict[UUID, Ended] = {}
        waited = Awaited([node.job for node in nodes], (), ended.update)
        await all_ended_async(self._access, waited, left_s)
        outcomes = [ended[node.job] for node in nodes]
        self._check(nodes, outcomes)
        return await self._unpacked(outcomes)

    def result(self, timeout_s: float | None = None) -> list[R]:
        """Waits for what the jobs of the map return; see `result_async`."""
        return self._access.run(self.result_async(timeout_s))

    async def _elements(self) -> list[NodeView]:
        """The nodes of its jobs, in the order of its list."""
        group = (await self.job_async()).group
        own, found = "", list[NodeView]()
        if group is not None:
            async for node in self._access.connection().all_nodes(group):
                if node.job == self.id:
                    own = node.key
                elif node.scope is not None:
                    found.append(node)
        if not own:
            raise NotFound(f"{self._name} has left its group, as the job that added it ran again")
        return [node for node in found if node.scope == own]

    def _check(self, nodes: list[NodeView], outcomes: list[Ended]) -> None:
        """Raises the first error among these outcomes, if there is one."""
        both = zip(nodes, outcomes, strict=True)
        bad = [pair for pair in both if pair[1].state is not JobState.SUCCEEDED]
        if bad:
            node, ended = bad[0]
            who = f"{self._name}: {len(bad):,} of its {len(nodes):,} jobs did not succeed"
            raise unsuccessful(f"{who}; '{node.key}'", ended)

    async def _unpacked(self, outcomes: list[Ended]) -> list[R]:
        if not outcomes:
            return []
        # All of them are of one kind.
        unpack = self._of_element(await self._access.connection().job(outcomes[0].id))
        return [unpack(one.result) for one in outcomes]


def _nothing(data: bytes | None) -> Any:
    """What the map's own job returns."""
    return None

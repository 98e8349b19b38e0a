"""Images: one that is present is used as it is, any other one is pulled, once at a time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import aiodocker
from aiodocker.exceptions import DockerError

from longshore.core.images import ImageName, parse_image
from longshore.errors import ConfigError, InvalidInput
from longshore.executors.host.programs import engine_errors
from longshore.executors.host.programs.engine import losses
from longshore.executors.host.programs.registries import credentials_for
from longshore.executors.host.programs.runner import CannotBegin
from longshore.executors.output.attempt_log import AttemptLog
from longshore.model.program import Outcome, ProgramEnd


class Pulls:
    """The images of one engine."""

    def __init__(self, docker: aiodocker.Docker, registries: str) -> None:
        self._docker = docker
        self._registries = registries
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def present(self, image: str, log: AttemptLog) -> dict[str, Any]:
        """What the engine says of an image, which is pulled if it is not there.

        Raises `CannotBegin` if it cannot be had.
        """
        try:
            name = parse_image(image)
        except InvalidInput as error:
            raise CannotBegin(ProgramEnd(Outcome.IMAGE_MISSING, words=str(error))) from None
        with losses():
            found = await self._inspect(image)
            if found is not None:
                return found
            async with self._locks[image]:
                return await self._inspect(image) or await self._pulled(image, name, log)

    async def _pulled(self, image: str, name: ImageName, log: AttemptLog) -> dict[str, Any]:
        log.step(f"pulling image: {image}")
        if not name.source:
            raise CannotBegin(
                engine_errors.pull_failed(image, 404, "an id names images present only")
            )
        try:
            await self._pull(image, name)
        except DockerError as error:
            raise CannotBegin(
                engine_errors.pull_failed(image, error.status, error.message)
            ) from None
        except ConfigError as error:
            raise CannotBegin(ProgramEnd(Outcome.PULL_FAILED, words=str(error))) from None
        found = await self._inspect(image)
        if found is None:
            raise CannotBegin(
                engine_errors.pull_failed(image, 404, "the engine does not have it now")
            )
        return found

    async def _pull(self, image: str, name: ImageName) -> None:
        auth = credentials_for(self._registries, name.registry)
        said = self._docker.images.pull(name.source, tag=name.version, auth=auth, stream=True)
        async for line in said:
            # A pull that fails on its way has been answered with 200 before.
            if "error" in line:
                raise CannotBegin(engine_errors.pull_failed(image, 200, str(line["error"])))

    async def _inspect(self, image: str) -> dict[str, Any] | None:
        try:
            return dict(await self._docker.images.inspect(image))
        except DockerError as error:
            if error.status == 404:
                return None
            raise

"""Images that are not there are pulled from a real registry, with credentials if it asks."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore.model.program import Container, Outcome
from longshore.testing.engine import IMAGE, PASSWORD, USER, Engine, Registry

from .ship import Attempt, run, runner, whole


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with Registry() as registry:
        yield registry


@pytest.fixture(scope="module")
def closed_registry() -> Iterator[Registry]:
    with Registry(closed=True) as registry:
        yield registry


def hello(image: str) -> Container:
    return Container(image=image, command=("echo", "hello"))


async def test_an_image_is_pulled_once_and_then_used_as_it_is(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    image = registry.push(engine, IMAGE, "tools:1")
    first, second = Attempt(tmp_path / "1", hello(image)), Attempt(tmp_path / "2", hello(image))
    assert (await run(engine.url, first)).is_success
    assert (await run(engine.url, second)).is_success
    assert first.steps == [f"pulling image: {image}", "creating container"]
    assert second.steps == ["creating container"]
    assert first.printed() == ["hello"]


async def test_only_the_version_that_is_named_is_pulled(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    wanted = registry.push(engine, IMAGE, "many:latest")
    registry.push(engine, IMAGE, "many:2")
    attempt = Attempt(tmp_path, hello(wanted.removesuffix(":latest")))
    assert (await run(engine.url, attempt)).is_success
    tags = engine.docker("images", "--format", "{{.Tag}}", wanted.removesuffix(":latest"))
    assert tags.split() == ["latest"]


async def test_an_image_that_nobody_has_is_named(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    image = f"{registry.address}/never:1"
    attempt = Attempt(tmp_path, hello(image))
    end = await run(engine.url, attempt)
    assert end.outcome is Outcome.IMAGE_MISSING
    assert end.words.startswith(f"the image {image} could not be pulled: ")
    assert attempt.steps == [f"pulling image: {image}"]


async def test_a_name_that_is_none_reaches_no_engine(engine: Engine, tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, hello("../../containers"))
    end = await run(engine.url, attempt)
    assert end.outcome is Outcome.IMAGE_MISSING
    assert "no name of an image" in end.words
    assert attempt.steps == []


async def test_a_registry_that_is_down_costs_the_job_nothing(
    engine: Engine, tmp_path: Path
) -> None:
    with Registry() as registry:
        image = registry.push(engine, IMAGE, "tools:1")
        registry.stop()
        end = await run(engine.url, Attempt(tmp_path, hello(image)))
    assert end.outcome is Outcome.PULL_FAILED
    assert "connection refused" in end.words


async def test_a_closed_registry_opens_to_the_credentials_of_the_worker(
    engine: Engine, closed_registry: Registry, tmp_path: Path
) -> None:
    image = closed_registry.push(engine, IMAGE, "private:1")
    refused = await run(engine.url, Attempt(tmp_path / "refused", hello(image)))
    assert refused.outcome is Outcome.IMAGE_MISSING
    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"auths": {closed_registry.address: {"auth": auth}}}))
    async with runner(engine.url, registries=str(file)) as made:
        attempt = Attempt(tmp_path / "allowed", hello(image))
        assert (await whole(made, attempt)).is_success

"""Web workers over HTTP: whose they are, and who ends them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from msgspec import structs
from tests.unit.dispatcher.stage import Stage
from tests.unit.dispatcher.test_rare_orders import pass_time

from longshore.core.access import hash_of
from longshore.gateway.asking import asked_by
from longshore.model.access import Role
from longshore.model.job import JobState
from longshore.model.web_worker import WebRegistration, WebState
from longshore.model.worker import Attended, SessionKey
from longshore.testing.builders import Scene, a_worker, new_id

from .doors import Door, bearer, story

SAID = WebRegistration(host="127.0.0.1", port=9000, kinds=("work",))


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_service_whose_token_ends_is_let_go_with_its_jobs(how: str) -> None:
    @story
    async def told(stage: Stage, door: Door) -> None:
        web, scene = door.connection.web, Scene(stage.model)
        owner = hash_of(await door.token(Role.WORKER, "mine", expires_s=60.0))
        other = hash_of(await door.token(Role.WORKER))
        with asked_by(owner):
            mine = (await web.register(structs.replace(SAID, principal=owner.hex()))).web_worker
        said = structs.replace(SAID, port=9001, principal=other.hex())
        theirs = (await web.register(said)).web_worker
        nobodys = (await web.register(structs.replace(SAID, port=9002))).web_worker
        info = a_worker(id=mine.worker, kinds=["work"])
        attended = await stage.model.attend(scene.dispatcher, info)
        assert isinstance(attended, Attended)
        attempt = await scene.running(slot=SessionKey(mine.worker, attended.session))
        ids = [mine.id, theirs.id, nobodys.id]
        gateway = new_id()
        assert mine.id not in (await web.attend(gateway, ids, [])).ended
        if how == "revoked":
            [named] = [one for one in await stage.model.tokens() if one.name == "mine"]
            await stage.model.revoke_token(named.id)
        await pass_time(stage, 61 if how == "expired" else 1.5)
        assert (await web.attend(gateway, ids, [])).ended == (mine.id,)
        states = {one.id: one.state for one in await stage.model.web_workers(ids)}
        assert states[mine.id] is WebState.RESIGNED
        assert WebState.RESIGNED not in (states[theirs.id], states[nobodys.id])
        assert (await scene.job(attempt.id)).state is JobState.READY

    told()


@story
async def test_an_admin_resigns_a_web_worker_without_its_secret(stage: Stage, door: Door) -> None:
    door.gateway.settings = structs.replace(door.gateway.settings, web_signatures=True)
    door.gateway.web = SimpleNamespace(look=lambda: None, secret=_secret)  # type: ignore[assignment]
    id = (await door.connection.web.register(SAID)).web_worker.id
    path = f"/dispatcher/workers/{id}"
    admin, worker = bearer(await door.token()), bearer(await door.token(Role.WORKER))
    for headers in ({}, worker, {**admin, "longshore-signature": "0" * 64}):
        reply = await door.call("DELETE", path, chunks=None, **headers)
        assert (reply.status, reply.json["code"]) == (403, "bad_signature")
    reply = await door.call("DELETE", path, chunks=None, **admin)
    assert (reply.status, reply.json["verdict"]) == (200, "resigned")


async def _secret(web: object) -> str:
    return "s" * 32

"""Lists of actors: by the fields that their class declares, by status, a page at a time."""

from __future__ import annotations

import pytest
from msgspec import structs

from longshore.model.actor import Actor, ActorFilter, ActorStatus, ActorVerdict
from longshore.store.actor_rows import MOST_LOOKED_AT
from longshore.testing.actor_builders import TYPE, ActorScene, a_message, an_actor, taken
from longshore.testing.builders import Scene

PRO, BASIC = {"plan": '"pro"'}, {"plan": '"basic"'}


@pytest.fixture
async def actors(scene: Scene) -> ActorScene:
    return await ActorScene.begin(scene)


async def pages(actors: ActorScene, wanted: ActorFilter) -> list[tuple[Actor, ...]]:
    """All pages of a list."""
    found = []
    while True:
        page = await actors.store.actors(wanted)
        found.append(page.actors)
        if page.after is None:
            return found
        wanted = structs.replace(wanted, after=page.after)


async def keys(actors: ActorScene, wanted: ActorFilter | None = None, **fields: str) -> list[str]:
    wanted = wanted or ActorFilter(TYPE, fields={name: f'"{v}"' for name, v in fields.items()})
    return [one.key for page in await pages(actors, wanted) for one in page]


async def turn(actors: ActorScene, key: str, listed: dict[str, str] | None) -> None:
    """A turn of this actor that leaves this."""
    await actors.send(a_message(key=key))
    await actors.pump(taken(await actors.turn(), listed=listed))


async def test_actors_are_listed_by_a_field_in_the_order_of_keys(actors: ActorScene) -> None:
    await actors.start(an_actor("c", listed=PRO), an_actor("a", listed=PRO), an_actor("b"))
    await actors.start(an_actor("d", listed=BASIC), an_actor("e", type="other", listed=PRO))
    assert await keys(actors, plan="pro") == ["a", "c"]
    assert await keys(actors, plan="basic") == ["d"]
    assert await keys(actors, plan="none") == []
    assert await keys(actors, seats="pro") == []
    wanted = ActorFilter(TYPE, fields=PRO, limit=1)
    assert [[one.key for one in page] for page in await pages(actors, wanted)] == [["a"], ["c"], []]
    assert (await actors.actor("a")).listed == PRO


async def test_a_turn_changes_what_its_actor_is_listed_by(actors: ActorScene) -> None:
    await actors.sleeping(an_actor("a", listed=BASIC), an_actor("b", listed=BASIC))
    await turn(actors, "a", {"plan": '"pro"', "seats": "3"})
    assert (await keys(actors, plan="pro"), await keys(actors, plan="basic")) == (["a"], ["b"])
    await turn(actors, "a", None)
    assert (await actors.actor("a")).listed == {"plan": '"pro"', "seats": "3"}
    await turn(actors, "a", {"seats": "3"})
    assert await keys(actors, plan="pro") == []
    await turn(actors, "a", {})
    assert (await actors.actor("a")).listed == {}


async def test_a_turn_that_does_not_count_changes_no_list(actors: ActorScene) -> None:
    await actors.start(an_actor("a", listed=BASIC))
    attempt = await actors.turn()
    await actors.pump(taken(attempt, listed=PRO))
    await actors.pump(taken(attempt, listed={"plan": '"late"'}))
    assert (await actors.actor("a")).listed == PRO


async def test_an_edit_lists_anew_and_a_stop_takes_it_from_all_lists(actors: ActorScene) -> None:
    await actors.sleeping(an_actor("a", listed=BASIC))
    edit = await actors.store.edit_actor(TYPE, "a", b"\x02", 1, listed=PRO)
    assert edit is ActorVerdict.DONE
    assert await keys(actors, plan="pro") == ["a"]
    await actors.store.edit_actor(TYPE, "a", b"\x03", 1)
    assert await keys(actors, plan="pro") == ["a"]
    await actors.store.stop_actor(TYPE, "a")
    assert await keys(actors, plan="pro") == []
    await actors.start(an_actor("a"))
    assert (await actors.actor("a")).listed == {}


async def test_a_turn_that_stops_its_actor_takes_it_from_all_lists(actors: ActorScene) -> None:
    await actors.start(an_actor("a", listed=PRO))
    await actors.pump(taken(await actors.turn(), listed=PRO, stops=True))
    assert await keys(actors, plan="pro") == []


async def test_several_fields_and_a_status_all_count(actors: ActorScene) -> None:
    both = {**PRO, "seats": "3"}
    await actors.start(*(an_actor(key, listed=both) for key in "ab"), an_actor("c", listed=PRO))
    await actors.store.pause_actor(TYPE, "b", True)
    paused = ActorStatus.PAUSED
    assert await keys(actors, ActorFilter(TYPE, fields=both)) == ["a", "b"]
    assert await keys(actors, ActorFilter(TYPE, paused, fields=both)) == ["b"]
    assert await keys(actors, ActorFilter(TYPE, paused, fields=both, limit=1)) == ["b"]
    assert await keys(actors, ActorFilter(TYPE, fields={**PRO, "seats": "4"})) == []
    assert await keys(actors, ActorFilter(status=paused)) == ["b"]


async def test_a_list_looks_at_so_many_actors_and_then_says_where_to_go_on(
    actors: ActorScene,
) -> None:
    many = MOST_LOOKED_AT + 5
    await actors.start(*(an_actor(f"{n:05}", listed=PRO) for n in range(many)))
    await actors.store.pause_actor(TYPE, f"{many - 1:05}", True)
    for fields in ({}, PRO):
        wanted = ActorFilter(TYPE, ActorStatus.PAUSED, fields=fields)
        assert await keys(actors, wanted) == [f"{many - 1:05}"]
        assert len(await pages(actors, wanted)) <= 2
    assert len(await keys(actors, ActorFilter(TYPE, fields=PRO, limit=700))) == many

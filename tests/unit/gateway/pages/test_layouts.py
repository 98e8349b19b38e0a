"""What pages of groups keep, layouts by what they depend on; what the page of a job reads."""

from __future__ import annotations

from uuid import UUID

from msgspec import structs

from longshore.core.layout import lay_out
from longshore.gateway.pages.layouts import Layouts
from longshore.model.group import NodeView
from longshore.model.job import JobState
from longshore.wire import codec, messages

from ..api import Api
from ..conftest import api as api
from ..conftest import kit as kit
from ..conftest import make_api as make_api

GROUP = UUID(int=9)


def nodes(*keys: str) -> list[NodeView]:
    """A chain."""
    return [
        NodeView(
            key=key,
            job=UUID(int=at + 1),
            number=at + 1,
            kind="work",
            state=JobState.WAITING,
            after=(keys[at - 1],) if at else (),
        )
        for at, key in enumerate(keys)
    ]


async def test_a_new_state_colours_a_box_and_lays_nothing_out_anew() -> None:
    layouts, before = Layouts(), nodes("a", "b", "c")
    await layouts.of(GROUP, before, folded=False)
    after = [structs.replace(before[0], state=JobState.FAILED), *before[1:]]
    assert await layouts.of(GROUP, after, folded=False) == lay_out(after, folded=False)
    assert layouts.made == 1


async def test_another_job_or_edge_or_fold_is_laid_out_anew() -> None:
    layouts = Layouts()
    for seen in (nodes("a", "b"), nodes("a", "b", "c"), nodes("a", "c", "b")):
        assert await layouts.of(GROUP, seen, folded=False) == lay_out(seen, folded=False)
    chain = nodes("a", "b", "c")
    failed = [structs.replace(chain[0], state=JobState.FAILED), *chain[1:]]
    for seen in (chain, failed):
        assert await layouts.of(GROUP, seen, folded=True) == lay_out(seen, folded=True)
    assert layouts.made == 5


def listening(api: Api) -> list[messages.ListNodes]:
    """What nodes the kit's dispatcher is asked for from now on."""
    asked: list[messages.ListNodes] = []
    answer = api.kit.dispatcher.answer

    def heard(frames: list[bytes]) -> list[bytes]:
        request = codec.from_client.decode(frames)
        if isinstance(request, messages.ListNodes):
            asked.append(request)
        return answer(frames)

    api.kit.dispatcher.answer = heard  # type: ignore[method-assign,assignment]
    return asked


async def test_the_page_of_a_job_reads_only_its_neighbours_and_shows_them_as_they_are(
    api: Api,
) -> None:
    jobs = [
        {"key": "a", "kind": "add", "args": {"a": 1, "b": 1}},
        {"key": "b", "kind": "add", "args": {"a": 1, "b": 1}, "after": ["a"]},
        {"key": "far", "kind": "add", "args": {"a": 1, "b": 1}},
    ]
    await api.post("/dispatcher/groups/", {"name": "g", "jobs": jobs})
    api.replies[messages.ListWorkers] = ()
    asked = listening(api)
    first = (await api.get("/jobs/3")).body.decode()
    assert "Depends on" in first
    assert "far" not in first
    assert asked
    assert all(request.jobs for request in asked), "no look at the whole group"
    await api.kit.drain_async()
    page = (await api.get("/jobs/3")).body.decode()
    around = page[page.index("Depends on") :]
    assert "succeeded" in around[: around.index("</table>")]

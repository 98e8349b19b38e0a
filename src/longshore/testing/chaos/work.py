"""What clients submit: work of every sort, chosen by chance, with what must become of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from msgspec import Struct, structs

from longshore.client.ids import fresh_id
from longshore.model.group import GroupPart
from longshore.model.job import Options, RetryPolicy, Submission
from longshore.payload.values import pack_arguments
from longshore.testing.chaos import app
from longshore.testing.chaos.history import Called

SHORT_MS = 30
LONG_MS = 1500
STEADY_MS = 25_000
"""As long as it takes until the standby of a primary that was frozen takes over."""
LONG_SHARE = 0.1
"""How many bodies are long enough to be hit."""
WORST = RetryPolicy(attempts=20, backoff_s=0.1, max_backoff_s=0.5)


class Batch(Struct, frozen=True):
    """What one call submits: jobs, or a group."""

    called: tuple[Called, ...]
    jobs: tuple[Submission, ...] = ()
    group: GroupPart | None = None
    cancels: bool = False
    """Whether the client cancels it a moment later."""


class Setting(Struct, frozen=True):
    """What jobs need to know of their run."""

    bodies: str
    receiver: str = ""
    """Where callbacks go; empty: there are none."""
    actors: tuple[str, ...] = ()


Maker = Callable[[random.Random, Setting], Batch]


def _ms(chance: random.Random) -> int:
    most = LONG_MS if chance.random() < LONG_SHARE else SHORT_MS
    return chance.randint(1, most)


def _one(job: Submission, sort: str, **more: object) -> Batch:
    return Batch((Called(job=str(job.id), sort=sort, **more),), (job,))  # type: ignore[arg-type]


def _step(chance: random.Random, setting: Setting) -> Batch:
    return _one(app.step.call(_ms(chance)).submission, "async")


def _steady(chance: random.Random, setting: Setting) -> Batch:
    return _one(app.step.call(chance.randint(STEADY_MS // 2, STEADY_MS)).submission, "steady")


def _block(chance: random.Random, setting: Setting) -> Batch:
    return _one(app.block.call(_ms(chance)).submission, "process")


def _thread(chance: random.Random, setting: Setting) -> Batch:
    return _one(app.thread.call(_ms(chance)).submission, "thread")


def _flaky(chance: random.Random, setting: Setting) -> Batch:
    call = app.flaky.call(_ms(chance), chance.randint(0, 3))
    return _one(call.submission, "flaky")


def _doomed(chance: random.Random, setting: Setting) -> Batch:
    return _one(app.doomed.call(_ms(chance)).submission, "doomed", ends=("failed",))


def _parent(chance: random.Random, setting: Setting) -> Batch:
    children = chance.randint(1, 3)
    job = app.parent.call(_ms(chance), children).submission
    return _one(job, "parent", children=children)


def _teller(chance: random.Random, setting: Setting) -> Batch:
    to = chance.choice(setting.actors)
    return _one(app.teller.call(_ms(chance), to).submission, "teller", sends_to=to)


def _limited(chance: random.Random, setting: Setting) -> Batch:
    kind = chance.choice((app.fill, app.drain))
    return _one(kind.call(chance.choice(app.TANKS), _ms(chance)).submission, "limited")


def _cancelled(chance: random.Random, setting: Setting) -> Batch:
    made = _one(app.step.call(LONG_MS).submission, "cancelled", ends=("cancelled", "succeeded"))
    return structs.replace(made, cancels=True)


def _callback(chance: random.Random, setting: Setting) -> Batch:
    kind = app.step.options(callback=setting.receiver)
    return _one(kind.call(_ms(chance)).submission, "callback", callback=True)


def _command(chance: random.Random, setting: Setting) -> Batch:
    job = app.unload.call(bodies=setting.bodies).submission
    return _one(job, "command", files=True)


def _raw(chance: random.Random, setting: Setting) -> Batch:
    id = fresh_id()
    job = Submission(id, "raw", str(id).encode(), options=Options(raw=True, retry=WORST))
    return _one(job, "plain")


def _web(chance: random.Random, setting: Setting) -> Batch:
    args = pack_arguments({"ms": _ms(chance)}, "web_step")
    return _one(Submission(fresh_id(), "web_step", args, options=Options(retry=WORST)), "web")


def _group(chance: random.Random, setting: Setting) -> Batch:
    """Two, one of which grows, then one after both; one that fails, and who depends on it."""
    group = app.app.group("chaos")
    first = group.add(app.block.call(_ms(chance)))
    grows = group.add(app.grow.call(_ms(chance), children := chance.randint(1, 3)))
    joined = group.add(app.step.call(_ms(chance)), after=[first, grows])
    fails = group.add(app.doomed.call(_ms(chance)), after=joined)
    spoilt = group.add(app.step.call(1), after=fails, key="spoilt")
    group.add(app.step.call(1), after=spoilt, key="spoilt-too")
    group.add(app.step.call(_ms(chance)), after=fails, on="failed")
    group.add(app.step.call(_ms(chance)), after=spoilt, on="ended", key="last")
    return _described(group.take_group(fresh_id(), ()), children)


_ENDS = {"doomed": "failed", "spoilt": "dependency_failed", "spoilt-too": "dependency_failed"}


def _described(part: GroupPart, children: int) -> Batch:
    """A group with what must become of each of its jobs."""
    ids = [str(node.job.id) for node in part.nodes]
    called = [
        Called(
            job=str(node.job.id),
            sort="group",
            ends=(_ENDS.get(node.key, "succeeded"),),
            after=tuple(ids[place] for place in node.after),
            children=children if node.key == "grow" else 0,
        )
        for node in part.nodes
    ]
    return Batch(tuple(called), group=part)


_MAKERS: dict[str, tuple[int, Maker]] = {
    "async": (6, _step),
    "process": (4, _block),
    "thread": (2, _thread),
    "flaky": (2, _flaky),
    "doomed": (1, _doomed),
    "parent": (3, _parent),
    "teller": (3, _teller),
    "limited": (5, _limited),
    "cancelled": (1, _cancelled),
    "callback": (2, _callback),
    "command": (1, _command),
    "plain": (3, _raw),
    "web": (2, _web),
    "group": (2, _group),
}
SORTS = tuple(_MAKERS)
STEADY = "steady"
"""Jobs that run through a failover; only where the store is a cluster."""
_MAKERS[STEADY] = (1, _steady)


class Menu:
    """Chooses what to submit next."""

    def __init__(self, seed: str, sorts: Sequence[str], setting: Setting) -> None:
        self._chance = random.Random(seed)
        self._setting = setting
        self._sorts = tuple(sorts)
        self._weights = [_MAKERS[sort][0] for sort in sorts]

    def next(self, actors: tuple[str, ...]) -> Batch:
        """One more batch; its jobs may tell these actors."""
        (sort,) = self._chance.choices(self._sorts, self._weights)
        setting = structs.replace(self._setting, actors=actors)
        return _MAKERS[sort][1](self._chance, setting)

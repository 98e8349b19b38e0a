"""New runs of groups: what is taken over rests only on what is taken over."""

from __future__ import annotations

from random import Random
from uuid import UUID

from longshore.core.new_run import Copy, copies, run_plan
from longshore.core.reopening import NodeState
from longshore.model.group import GroupState
from longshore.model.job import JobState

S = JobState
ID = UUID(int=1)


def random_group(random: Random) -> list[NodeState]:
    """Jobs that depend on earlier ones, a sub-group, and what some jobs added."""
    nodes = []
    for place in range(random.randint(1, 9)):
        after = sorted(random.sample(range(place), random.randint(0, min(place, 2))))
        nodes.append(NodeState(f"k{place}", _state(random), after))
    for adder in range(len(nodes)):
        first = len(nodes)
        for place in range(first, first + random.choice((0, 0, 0, 1, 3))):
            after = [place - 1] if place > first and random.random() < 0.5 else []
            key, scope = f"{nodes[adder].key}/{place}", adder if random.random() < 0.7 else None
            nodes.append(NodeState(key, _state(random), after, scope, is_added=True))
    return nodes


def _state(random: Random) -> JobState:
    return random.choice((S.SUCCEEDED, S.SUCCEEDED, S.SUCCEEDED, S.FAILED, S.SKIPPED))


def inside(nodes: list[NodeState], place: int) -> set[int]:
    """What is in the scope of a node, however deep."""
    found = {at for at, node in enumerate(nodes) if node.scope == place}
    return found.union(*(inside(nodes, at) for at in found))


def adder(nodes: list[NodeState], place: int) -> int | None:
    key = nodes[place].key.rpartition("/")[0]
    return next((at for at, node in enumerate(nodes) if node.key == key), None)


def plainly_taken(nodes: list[NodeState], made: dict[int, Copy], place: int) -> bool:
    """Whether a node must be taken over, if the others are as they are."""
    needed = [at for one in nodes[place].after for at in (one, *inside(nodes, one))]
    return nodes[place].state is S.SUCCEEDED and all(
        at not in made or made[at].is_taken for at in needed
    )


def test_the_rule_holds_for_each_job_of_any_group() -> None:
    for seed in range(500):
        random = Random(seed)
        nodes = random_group(random)
        named = random.choice(nodes).key if random.random() < 0.3 else ""
        made = {one.at: one for one in copies(nodes, [named] if named else [])}
        for place, node in enumerate(nodes):
            parent = adder(nodes, place)
            is_in = parent is None or (parent in made and made[parent].is_taken)
            assert (place in made) is is_in, f"seed {seed}: {node.key}"
            if is_in and node.key != named:
                wanted = plainly_taken(nodes, made, place)
                assert made[place].is_taken is wanted, f"seed {seed}: {node.key}"


def test_counters_are_those_of_what_runs_anew() -> None:
    for seed in range(500):
        nodes = random_group(Random(seed))
        made = {one.at: one for one in copies(nodes)}

        def is_open(
            place: int, nodes: list[NodeState] = nodes, made: dict[int, Copy] = made
        ) -> bool:
            around = [place, *inside(nodes, place)]
            return any(at in made and not made[at].is_taken for at in around)

        for place, one in made.items():
            direct = [at for at in made if nodes[at].scope == place]
            assert one.open == sum(map(is_open, direct)), f"seed {seed}"
            if not one.is_taken:
                assert one.unmet == sum(map(is_open, nodes[place].after)), f"seed {seed}"


def test_a_group_that_was_never_whole_is_refused() -> None:
    nodes = [NodeState("a", S.CANCELLED, [])]
    plan, made = run_plan(ID, GroupState.CANCELLED, nodes, (), is_whole=False, max_jobs=9)
    assert ("submit it again" in plan.refused, made) == (True, [])

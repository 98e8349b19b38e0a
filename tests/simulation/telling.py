"""How a test says which seed broke which promise: with the story of the job."""

from __future__ import annotations

from longshore.testing.simulation.run import Verdict


def assert_kept(verdict: Verdict, scenario: str = "jobs") -> None:
    """Fails with the story if a promise was broken in this scenario."""
    broken = verdict.broken
    if broken is None:
        return
    lines = list(verdict.trace.story(broken.job)) if broken.job else []
    again = f"longshore simulate --seed {verdict.scenario.seed} --scenario {scenario}"
    raise AssertionError("\n".join([f"{broken}; to see it again: {again}", *lines[-80:]]))

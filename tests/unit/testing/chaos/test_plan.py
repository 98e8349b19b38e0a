"""The plan of faults: the seed decides it, and it strikes only what there is."""

from __future__ import annotations

from longshore.testing.chaos.plan import OF_CLUSTER, ONCE, Deed, Shape, cluster_plan, plan

SHAPE = Shape(
    {
        "dispatcher": ("dispatcher-1", "dispatcher-2"),
        "worker": ("worker-1",),
        "postgres": ("postgres",),
        "gateway": (),
        "link": ("worker-1>dispatcher-1",),
    },
    (("postgres", Deed.FULL_DISK),),
)

OF_CLUSTERS_ALONE = {Deed.KILL_SERVER, Deed.CUT_OFF, Deed.SWITCHOVER, Deed.STRAND}


def test_a_seed_is_one_plan() -> None:
    assert plan(7, SHAPE, 300, 2, 8) == plan(7, SHAPE, 300, 2, 8)
    assert plan(7, SHAPE, 300, 2, 8) != plan(8, SHAPE, 300, 2, 8)


def test_every_deed_that_is_possible_comes_and_no_other() -> None:
    faults = plan(1, SHAPE, 20_000, 1, 8)
    assert {fault.deed for fault in faults} == set(Deed) - OF_CLUSTERS_ALONE
    assert not [f for f in faults if (f.whom, f.deed) == ("postgres", Deed.FULL_DISK)]
    assert {fault.whom for fault in faults} == {
        name for names in SHAPE.parts.values() for name in names
    }


def test_faults_come_in_order_and_are_over_before_the_end() -> None:
    faults = plan(3, SHAPE, 100, 1, 8)
    assert [f.at_s for f in faults] == sorted(f.at_s for f in faults)
    assert all(fault.at_s + fault.lasts_s <= 100.001 for fault in faults)
    assert all((fault.lasts_s == 0) == (fault.deed in ONCE) for fault in faults)
    assert [fault.number for fault in faults] == list(range(1, len(faults) + 1))


def test_a_cluster_suffers_every_deed_once_before_one_comes_again() -> None:
    faults = cluster_plan(5, 2 * len(OF_CLUSTER) * 40, 40, 30)
    struck = [(fault.deed, fault.whom) for fault in faults]
    assert set(struck[: len(OF_CLUSTER)]) == set(OF_CLUSTER)
    assert struck[: len(OF_CLUSTER)] != struck[len(OF_CLUSTER) : 2 * len(OF_CLUSTER)]
    ends = [fault.at_s + fault.lasts_s for fault in faults]
    assert all(end <= after.at_s + 5 for end, after in zip(ends, faults[1:], strict=False))


def test_a_run_on_a_cluster_has_a_fault_however_short_it_is() -> None:
    (fault,) = cluster_plan(1, 10, 40, 30, [(Deed.KILL_SERVER, "primary")])
    assert (fault.deed, fault.whom) == (Deed.KILL_SERVER, "primary")
    assert fault.at_s + fault.lasts_s <= 10

"""How much is measured: quick to try, minutes for each part by default, or in full."""

from __future__ import annotations

from msgspec import Struct


class Sizes(Struct, frozen=True, kw_only=True):
    """Every number of jobs, samples and seconds. These are the default ones."""

    pairs: int = 5
    run_s: float = 1.5
    """How long one run of a pair should take about; the number of jobs follows from it."""
    most_jobs: int = 20_000
    limit_jobs: int = 40_000
    limit_rounds: int = 2
    connections: tuple[int, ...] = (1, 2, 3, 4)
    dispatchers: tuple[int, ...] = (1, 2)
    most_peers: int = 100
    peer_share: float = 0.4
    """Of the jobs that each peer could do in reasonable time."""
    plain_jobs: int = 10_000
    blocking_jobs: int = 1_000
    computing_jobs: int = 200
    command_jobs: int = 2_000
    mixed_jobs: int = 320
    graph: tuple[int, int] = (50, 100)
    """Layers, and the jobs of each."""
    large_graph: tuple[int, int] = (100, 1_000)
    chain_jobs: int = 500
    actors: int = 1_000
    messages: int = 20_000
    peer_actors: int = 100
    sleepers: int = 100_000
    quiet_s: float = 25.0
    """So long no timer of a sleeper is due, and a little for each run of jobs."""
    steady_rate: float = 200.0
    """Messages a second to one actor, one by one."""
    steady_s: float = 45.0
    samples: int = 500
    pause_s: float = 0.005
    """Between two samples of a latency, so that the machine is idle when each begins."""
    unserved: int = 1_000_000
    ended: int = 1_000_000
    delayed: int = 100_000
    fillings: int = 3
    snapshot_s: float = 60.0
    slice_s: float = 4.0
    http_requests: int = 6_000
    shown_ended: int = 1_000_000
    shown_ready: int = 100_000
    page_samples: int = 200
    tabs: int = 200
    tabs_s: float = 30.0
    containers: int = 40
    fileset_bytes: int = 1_000_000_000
    small_files: int = 100_000
    flood_s: float = 3.0
    """For how long a flood rises before others are measured."""
    idle_workers: tuple[int, ...] = (100, 1_000, 5_000)
    watch_s: float = 10.0
    """As long as a dispatcher waits between two notes of who was heard of, or longer."""
    cost_jobs: int = 40_000
    queued: int = 1_000_000
    queued_workers: int = 1_000
    queue_by_client: bool = False
    limit_keys: int = 100_000
    lock_keys: int = 50
    """Of each of these keys one job runs at a time."""
    schedules: int = 100_000
    due: int = 1_000
    """So many of the schedules are due in the same second."""
    flood_jobs: int = 1_000_000
    """As many jobs one tenant has waiting while others come."""
    fair_keys: int = 10_000


DEFAULT = Sizes()
FULL = Sizes(
    run_s=4.0,
    most_jobs=100_000,
    limit_jobs=80_000,
    limit_rounds=3,
    peer_share=1.0,
    plain_jobs=40_000,
    blocking_jobs=4_000,
    computing_jobs=800,
    mixed_jobs=960,
    command_jobs=8_000,
    messages=100_000,
    sleepers=1_000_000,
    steady_s=600.0,
    samples=4_000,
    ended=10_000_000,
    snapshot_s=600.0,
    slice_s=10.0,
    watch_s=30.0,
    cost_jobs=200_000,
    queue_by_client=True,
    shown_ended=10_000_000,
    shown_ready=1_000_000,
    page_samples=500,
)
QUICK = Sizes(
    pairs=1,
    schedules=1_000,
    due=50,
    limit_keys=500,
    lock_keys=10,
    flood_jobs=5_000,
    fair_keys=200,
    run_s=0.3,
    most_jobs=2_000,
    limit_jobs=3_000,
    limit_rounds=1,
    dispatchers=(1,),
    most_peers=1,
    peer_share=0.1,
    connections=(1, 2),
    plain_jobs=1_000,
    blocking_jobs=128,
    computing_jobs=40,
    mixed_jobs=20,
    command_jobs=200,
    graph=(5, 20),
    large_graph=(5, 400),
    chain_jobs=40,
    http_requests=400,
    shown_ended=3_000,
    shown_ready=500,
    page_samples=5,
    tabs=8,
    tabs_s=1.0,
    containers=4,
    fileset_bytes=2_000_000,
    small_files=300,
    flood_s=0.3,
    actors=50,
    messages=1_000,
    peer_actors=20,
    sleepers=5_000,
    quiet_s=5.0,
    steady_s=3.0,
    samples=50,
    unserved=20_000,
    ended=20_000,
    delayed=5_000,
    fillings=1,
    snapshot_s=1.0,
    slice_s=0.3,
    idle_workers=(50, 100),
    watch_s=1.5,
    cost_jobs=3_000,
    queued=20_000,
    queued_workers=100,
)

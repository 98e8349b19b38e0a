"""Which worker gets the next job."""

from uuid import UUID

from longshore.core.lanes import body_hash, lane_of, serves
from longshore.core.placement import Profile, kept_slots, placed, slots_in_order, without
from longshore.model.job import Submission
from longshore.model.worker import FreeWorker, KindInfo, Pool, SessionKey, WorkerInfo

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)


def free(worker: UUID, slots: int, given: int) -> FreeWorker:
    return FreeWorker(SessionKey(worker, 1), slots, given)


def worker(**known: object) -> WorkerInfo:
    defaults: dict[str, object] = {"id": A, "kinds": {"fetch": KindInfo(Pool.COROUTINE)}}
    return WorkerInfo(**{**defaults, **known})  # type: ignore[arg-type]


def test_a_worker_serves_its_kinds_from_all_queues_unless_it_names_some() -> None:
    assert serves(worker(), lane_of("default", "fetch", ""))
    assert not serves(worker(), lane_of("default", "other", ""))
    assert serves(worker(queues=("mail",)), lane_of("mail", "fetch", ""))
    assert not serves(worker(queues=("mail",)), lane_of("default", "fetch", ""))


def test_a_job_without_target_fits_any_worker_one_with_target_only_that() -> None:
    arm = worker(target="linux-arm64")
    assert serves(arm, lane_of("default", "fetch", ""))
    assert serves(arm, lane_of("default", "fetch", "linux-arm64"))
    assert not serves(arm, lane_of("default", "fetch", "linux-x86_64"))
    assert not serves(worker(), lane_of("default", "fetch", "linux-x86_64"))


def test_a_lane_is_the_same_number_in_every_process() -> None:
    assert lane_of("default", "fetch", "").hash == -2308481460179136897
    assert lane_of("a", "bc", "").hash != lane_of("ab", "c", "").hash


def test_two_bodies_under_one_id_are_told_apart() -> None:
    job = Submission(A, "fetch", b"\x80")
    assert body_hash(job) == body_hash(Submission(A, "fetch", b"\x80"))
    assert body_hash(job) != body_hash(Submission(A, "fetch", b"\x80", priority=1))


def test_the_worker_with_most_free_slots_comes_first_then_they_alternate() -> None:
    workers = [free(A, 1, 0), free(B, 3, 9)]
    assert [slot.worker for slot in slots_in_order(workers, 10)] == [B, B, A, B]


def test_least_given_breaks_ties() -> None:
    workers = [free(A, 2, 5), free(B, 2, 4)]
    assert [slot.worker for slot in slots_in_order(workers, 2)] == [B, A]


def test_least_given_breaks_ties_of_three_and_counts_what_is_given_now() -> None:
    workers = [free(A, 2, 5), free(B, 2, 3), free(C, 2, 4)]
    assert [slot.worker for slot in slots_in_order(workers, 10)] == [B, C, A, B, C, A]
    workers = [free(A, 2, 0), free(B, 1, 0), free(C, 1, 2)]
    assert [slot.worker for slot in slots_in_order(workers, 10)] == [A, B, A, C]


def test_never_more_slots_than_free_slots_or_than_wanted() -> None:
    workers = [free(A, 2, 0), free(B, 0, 0)]
    assert len(slots_in_order(workers, 10)) == 2
    assert len(slots_in_order(workers, 1)) == 1
    assert slots_in_order([free(A, -1, 0)], 2) == slots_in_order([], 2) == []


def test_a_profile_wants_only_lanes_of_the_pool() -> None:
    info = worker(kinds={"fetch": KindInfo(Pool.COROUTINE), "resize": KindInfo(Pool.PROCESS)})
    fetch, resize = lane_of("default", "fetch", ""), lane_of("default", "resize", "")
    profile = Profile(info, [fetch])
    profile.add_lane(resize)
    workers = [free(A, 1, 0)]
    want = profile.claim(profile.lanes[Pool.COROUTINE], workers, 10)
    assert want is not None
    assert want.lanes == (fetch.hash,)
    assert profile.claim(set(), workers, 10) is None


def test_alike_workers_share_a_profile() -> None:
    assert Profile.key(worker(id=A)) == Profile.key(worker(id=B, pools={"coroutine": 5}))
    assert Profile.key(worker()) != Profile.key(worker(target="gpu"))


def test_a_turn_keeps_its_worker_as_long_as_that_has_slots() -> None:
    a, b = SessionKey(A, 1), SessionKey(B, 1)
    assert kept_slots([B, A], [a, b, a, b]) == [b, a]
    assert kept_slots([B, B, B], [a, b, a, b]) == [b, b, a]
    assert kept_slots([None, B, C, A], [a, b, b, a]) == [b, b, a, a]
    assert kept_slots([None, None], [b, a]) == [b, a]
    assert kept_slots([], [a]) == []


def test_jobs_that_take_resources_fill_the_fullest_worker_first() -> None:
    workers = [
        FreeWorker(SessionKey(A, 1), 3, 0, room=1.0),
        FreeWorker(SessionKey(B, 1), 2, 9, room=0.5),
        FreeWorker(SessionKey(C, 1), 3, 1, room=1.0),
    ]
    assert [slot.worker for slot in slots_in_order(workers, 6)] == [B, B, A, A, A, C]
    assert slots_in_order(workers, 0) == []
    left = without(workers, slots_in_order(workers, 4))
    assert [slot.worker for slot in slots_in_order(left, 9)] == [A, C, C, C]


def test_a_job_that_takes_resources_goes_where_its_files_are_all_the_same() -> None:
    workers = [
        FreeWorker(SessionKey(one, 1), 2, 0, room=room) for one, room in ((A, 2.0), (B, 1.0))
    ]
    assert [slot.worker for slot in placed([A, None, A], workers)] == [A, B, A]

"""The codes of states: the schema's indexes go by the same ones, and old ones are carried over."""

from __future__ import annotations

from longshore.core.lifecycle import TERMINAL
from longshore.model.job import JobFilter, JobState
from longshore.store.migrations import steps
from longshore.store.postgres.connections import Connection
from longshore.store.postgres.states import CODES, ENDED, INDEXES, OWNED, STATES
from longshore.store.postgres.store import PostgresStore
from longshore.testing.builders import Scene, a_job, new_id

S = JobState
OLD_CODES = {
    S.WAITING: 0,
    S.DELAYED: 1,
    S.READY: 2,
    S.RUNNING: 3,
    S.CANCELLING: 4,
    S.SUCCEEDED: 5,
    S.FAILED: 6,
    S.DEPENDENCY_FAILED: 7,
    S.SKIPPED: 8,
    S.CANCELLED: 9,
}
"""Codes had no gaps up to version 2 of the schema."""

HELD = {
    "job_ready": f"(state = {CODES[S.READY]}) AND (blocked_on IS NULL)",
    "job_blocked": f"(state = {CODES[S.READY]}) AND (blocked_on IS NOT NULL)",
    "job_fair": (
        f"(state = {CODES[S.READY]}) AND (fair IS NOT NULL) AND"
        " (blocked_on IS DISTINCT FROM 'fair'::text)"
    ),
    "job_crowd": f"(crowd IS NOT NULL) AND (state < {ENDED})",
    "job_due": f"state = {CODES[S.DELAYED]}",
    "job_owned": f"state = ANY (ARRAY[{OWNED}])",
    "job_cancelling": f"state = {CODES[S.CANCELLING]}",
    "job_expiring": f"(state = {CODES[S.RUNNING]}) AND (expires_at IS NOT NULL)",
    "job_deadline": f"(state = {CODES[S.READY]}) AND (deadline_at IS NOT NULL)",
    "job_unique": f"(unique_key IS NOT NULL) AND (state < {ENDED})",
    "job_listed": f"(state = {CODES[S.WAITING]}) OR (state > {CODES[S.SUCCEEDED]})",
}


def test_every_state_has_its_own_code_and_only_what_is_over_comes_from_ended_on() -> None:
    assert CODES.keys() == set(JobState)
    assert {STATES[code] for code in CODES.values()} == set(JobState)
    assert {state for state, code in CODES.items() if code >= ENDED} == TERMINAL


async def test_the_indexes_hold_the_states_that_statements_look_for(
    postgres_store: PostgresStore, outside: Connection
) -> None:
    rows = await outside.fetch(
        "SELECT indexrelid::regclass::text AS name, pg_get_expr(indpred, indrelid) AS held"
        " FROM pg_index WHERE indrelid = 'longshore.job'::regclass AND indpred IS NOT NULL"
    )
    found = {row["name"].removeprefix("longshore."): row["held"] for row in rows}
    assert found == {name: f"({held})" for name, held in HELD.items()}


async def test_the_index_of_a_state_lists_its_jobs(
    postgres_store: PostgresStore, outside: Connection
) -> None:
    assert INDEXES.keys() == set(JobState) - {S.SUCCEEDED}
    for state, name in INDEXES.items():
        query = f"SELECT {HELD[name]} FROM (SELECT $1::int, NULL) AS j (state, blocked_on)"
        assert await outside.fetchval(query, CODES[state]), state


async def test_jobs_of_the_old_codes_are_what_they_were(
    postgres_url: str, outside: Connection
) -> None:
    for version, script in steps("postgres")[:2]:
        await outside.execute(script)
        await outside.execute("INSERT INTO longshore.longshore_schema VALUES ($1)", version)
    jobs = {state: new_id() for state in OLD_CODES}
    for state, id in jobs.items():
        await outside.execute(
            "INSERT INTO longshore.job (id, lane, body_hash, state, kind, queue, target, options,"
            """ history, args) VALUES ($1, 1, 1, $2, 'k', 'q', '', '\\x80', '["ready",0,"",""]',"""
            " '')",
            id,
            OLD_CODES[state],
        )
    await outside.execute("INSERT INTO longshore.job_number SELECT number, id FROM longshore.job")
    await outside.execute(
        "INSERT INTO longshore.tally (lane, delta, state) SELECT 1, 1, state FROM longshore.job"
    )
    await outside.execute("INSERT INTO longshore.lane VALUES (1, 'q', 'k', '')")
    store = PostgresStore(postgres_url)
    assert (await store.migrate())[0] == 2
    await store.open()
    listed = (await store.jobs(JobFilter())).jobs
    assert {job.id: job.state for job in listed} == {id: state for state, id in jobs.items()}
    [queue] = await store.queues()
    assert queue.counts == dict.fromkeys(OLD_CODES, 1)
    await Scene(store).accepted(a_job())
    await store.close()

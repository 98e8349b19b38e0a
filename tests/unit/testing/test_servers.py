"""Servers for tests end when they are told to, whoever runs the tests."""

from __future__ import annotations

import signal

from longshore.testing.servers import PgBouncer, PostgresServer


def test_pgbouncer_ends_at_once_though_a_shell_has_its_background_ignore_sigquit(
    postgres: PostgresServer,
) -> None:
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    try:
        with PgBouncer(postgres) as bouncer:
            process = bouncer._process
            assert process is not None
            bouncer.stop()
            assert process.returncode != -signal.SIGKILL
    finally:
        signal.signal(signal.SIGQUIT, before)

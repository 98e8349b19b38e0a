"""What a service that was written for the first dispatcher may rely on: its defaults."""

from __future__ import annotations

from longshore.config import DispatcherSettings, GatewaySettings
from longshore.core.web_workers import lease_of, promised_of

SETTINGS = GatewaySettings()


def test_services_are_asked_as_often_as_they_were_before() -> None:
    assert SETTINGS.web_ping_interval_s == 30
    assert SETTINGS.web_max_retries == 3
    assert SETTINGS.web_dead_ping_interval_s == 60
    assert SETTINGS.web_remove_after == 5
    assert SETTINGS.web_max_jobs == 1


def test_jobs_of_a_dead_service_are_freed_at_the_third_failed_check() -> None:
    every_s, retries = SETTINGS.web_ping_interval_s, SETTINGS.web_max_retries
    adopted_s = DispatcherSettings().lease_s + SETTINGS.web_adoption_s
    assert promised_of(every_s, retries, adopted_s) == every_s * retries
    assert lease_of(every_s, retries, adopted_s) == every_s * (retries + 1)


def test_jobs_outlast_the_loss_of_a_gateway_whatever_the_interval() -> None:
    """A service hears two intervals late that an answer counted, and stops its jobs 5 s early."""
    lease_s = DispatcherSettings().lease_s
    adopted_s = lease_s + SETTINGS.web_adoption_s
    for every_s in (0.5, 1.0, 4.0, 10.0, 22.0, 30.0, 60.0):
        left_s = promised_of(every_s, SETTINGS.web_max_retries, adopted_s) - 2 * every_s - 5
        assert left_s >= lease_s + 10

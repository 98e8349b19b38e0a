"""`retry_on` and `fail_on`: the host says whether an attempt that raised is tried again."""

from __future__ import annotations

from .stand import Stand, failure_in

FINAL = {
    "OSError": False,
    "ConnectionResetError": False,
    "FileNotFoundError": True,
    "ValueError": True,
    "SystemExit": True,
    "retry": False,
    "fail": True,
}


async def test_a_plain_function_is_tried_again_as_its_rule_says(stand: Stand) -> None:
    await stand.open_child()
    assert await _finals(stand, "raise_by_rule") == FINAL


async def test_a_coroutine_is_tried_again_as_its_rule_says(stand: Stand) -> None:
    await stand.open_coroutine()
    assert await _finals(stand, "raise_by_rule_async") == FINAL


async def _finals(stand: Stand, kind: str) -> dict[str, bool]:
    reports = {error: await stand.run(kind, error=error) for error in FINAL}
    return {error: failure_in(report).final for error, report in reports.items()}

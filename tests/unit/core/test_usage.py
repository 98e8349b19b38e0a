"""What attempts used: said in few different words, and read from them again."""

from __future__ import annotations

import pytest

from longshore.core.usage import MAX_BYTES, checked, noted, used
from longshore.model.usage import Usage


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (Usage(12_345_678, 1.2345), "used 12000 KiB of memory, 1.2 s of CPU"),
        (Usage(2_097_152, 0.0012), "used 2000 KiB of memory, 0 s of CPU"),
        (Usage(64 * 1024**3, 7234.5), "used 67000000 KiB of memory, 7200 s of CPU"),
        (Usage(), "used 0 KiB of memory, 0 s of CPU"),
    ],
)
def test_usage_is_said_in_two_digits_and_read_again(usage: Usage, words: str) -> None:
    assert noted("", usage) == words
    assert noted("exited with code 3", usage) == f"exited with code 3; {words}"
    again = used(noted("it said: used 1 KiB of memory", usage))
    assert again is not None
    assert again.memory_bytes == pytest.approx(usage.memory_bytes, rel=0.06)
    assert again.cpu_s == pytest.approx(usage.cpu_s, rel=0.06, abs=0.01)


@pytest.mark.parametrize(
    "info", ["", "handed back by its worker", "used 3 KiB of memory, 1 s of CPU, it says"]
)
def test_other_words_say_nothing_of_usage(info: str) -> None:
    assert used(info) is None


def test_what_cannot_be_is_dropped() -> None:
    assert checked(None) is None
    for wrong in (Usage(-1), Usage(MAX_BYTES + 1), Usage(1, -0.5), Usage(1, float("nan"))):
        assert checked(wrong) is None
    assert checked(Usage(5, 0.5)) == Usage(5, 0.5)

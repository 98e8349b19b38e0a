"""Which versions of a fileset are old."""

from longshore.core.version_retention import Known, old_versions

DAY_S = 86_400.0


def versions(*ages: float, partial: tuple[int, ...] = ()) -> list[Known]:
    """Versions 1, 2, …, of these ages in days."""
    return [Known(n, n in partial, age * DAY_S) for n, age in enumerate(ages, 1)]


def test_all_but_the_newest_are_old() -> None:
    assert old_versions(versions(3, 2, 1, 0), keep=2, older_s=0.0) == [2, 1]
    assert old_versions(versions(3, 2), keep=2, older_s=0.0) == []


def test_only_versions_of_some_age_are_old() -> None:
    assert old_versions(versions(30, 5, 1), keep=1, older_s=10 * DAY_S) == [1]


def test_newest_that_is_not_partial_stays() -> None:
    known = versions(3, 2, 1, 0, partial=(3, 4))
    assert old_versions(known, keep=1, older_s=0.0) == [3, 1]
    assert old_versions(versions(1, 0, partial=(1, 2)), keep=1, older_s=0.0) == [1]


def test_order_does_not_matter() -> None:
    assert old_versions(reversed(versions(3, 2, 1)), keep=1, older_s=0.0) == [2, 1]

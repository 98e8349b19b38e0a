"""Lists that are larger than a message should be."""

from hypothesis import given
from hypothesis import strategies as st

from longshore.wire.portions import portions


@given(st.lists(st.integers(0, 40)), st.integers(1, 50))
def test_portions_keep_the_order_lose_nothing_and_keep_to_the_size(
    sizes: list[int], most: int
) -> None:
    parts = list(portions(sizes, lambda size: size, most))
    assert [size for part in parts for size in part] == sizes
    assert all(len(part) == 1 or sum(part) <= most for part in parts)
    assert all(parts), "an empty message is none"


def test_a_portion_has_no_more_items_than_it_may() -> None:
    assert list(portions("abcde", len, 100, 2)) == [("a", "b"), ("c", "d"), ("e",)]

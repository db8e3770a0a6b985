"""PageAllocator against a naive set of free pages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.engine.kv.pages import PageAllocator, PageError


def pages(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int32)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 12), st.integers(0, 99)), max_size=60))
@settings(max_examples=200, deadline=None)
def test_allocations_match_a_naive_free_set(steps: list[tuple[bool, int, int]]) -> None:
    allocator = PageAllocator(40)
    free = set(range(40))
    held: list[np.ndarray] = []
    for take, count, pick in steps:
        if take or not held:
            after = int(held[pick % len(held)][-1]) if held and pick % 2 else None
            got = allocator.alloc(count, after)
            if count > len(free):
                assert got is None
                continue
            assert got is not None and len(got) == count and set(got.tolist()) <= free
            free -= set(got.tolist())
            held.append(got)
        else:
            back = held.pop(pick % len(held))
            allocator.free(back)
            free |= set(back.tolist())
        assert allocator.free_pages == len(free)
        spans = {p for start, n in allocator.runs().items() for p in range(start, start + n)}
        assert spans == free
        # Runs are maximal: no two of them touch.
        assert not any(start + n in allocator.runs() for start, n in allocator.runs().items())


def test_what_does_not_grow_lies_side_by_side_from_the_bottom() -> None:
    """Memory above what was ever in use is never touched."""
    allocator = PageAllocator(1000, roomy=False)
    held = [allocator.alloc(count) for count in (10, 1, 30)]
    assert [(int(h[0]), len(h)) for h in held if h is not None] == [(0, 10), (10, 1), (11, 30)]
    roomy = PageAllocator(1000).alloc(10)
    assert roomy is not None and roomy[0] == 495


def test_a_sequence_that_grows_stays_one_run() -> None:
    allocator = PageAllocator(1000)
    first = allocator.alloc(10)
    other = allocator.alloc(10)
    assert first is not None and other is not None
    more = allocator.alloc(50, after=int(first[-1]))
    assert more is not None
    assert np.array_equal(np.concatenate([first, more]), np.arange(first[0], first[0] + 60))


def test_a_request_larger_than_any_run_gets_several() -> None:
    allocator = PageAllocator(10)
    held = allocator.alloc(10)
    assert held is not None
    allocator.free(held[[0, 1, 4, 5, 8]])
    got = allocator.alloc(5)
    assert got is not None and sorted(got.tolist()) == [0, 1, 4, 5, 8]


@pytest.mark.parametrize("bad", [pages(3), pages(2, 2), pages(-1), pages(8)])
def test_freeing_wrongly_is_an_error_and_changes_nothing(bad: np.ndarray) -> None:
    allocator = PageAllocator(8)
    held = allocator.alloc(3)
    assert held is not None
    allocator.free(held)
    held = allocator.alloc(8)
    assert held is not None
    allocator.free(pages(3))
    with pytest.raises(PageError):
        allocator.free(bad)
    assert allocator.free_pages == 1

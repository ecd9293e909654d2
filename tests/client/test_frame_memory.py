"""Memory of responses is used again, and never while something refers to it."""

from __future__ import annotations

import random

from kafka_share_proxy.client.frame_memory import FRAME_BYTES_MAX, UNUSED_MAX, FrameMemory

SIZE = 100_000


def test_memory_is_used_again_once_nothing_refers_to_it() -> None:
    memory = FrameMemory()
    first = memory.take(SIZE)
    first[:] = b"1" * SIZE
    part, owner = first[10:20].toreadonly(), first.obj
    first.release()
    second = memory.take(SIZE)
    assert second.obj is not owner
    second[:] = b"2" * SIZE
    assert part == b"1" * 10
    part.release()
    assert memory.take(SIZE).obj is owner


def test_the_next_response_may_be_a_little_larger() -> None:
    memory = FrameMemory()
    owner = memory.take(SIZE).obj
    assert [len(memory.take(size)) for size in (SIZE + 1000, SIZE - 1000)] == [SIZE + 1000, SIZE - 1000]
    assert memory.take(SIZE + 1000).obj is owner


def test_small_responses_do_not_keep_large_memory() -> None:
    """The buffer counts the bytes of a response, not of the memory that it is in."""
    memory = FrameMemory()
    owner = memory.take(10 * SIZE).obj
    assert memory.take(SIZE).obj is not owner


def test_unused_memory_is_bounded() -> None:
    memory, dice = FrameMemory(), random.Random(1)
    in_use: list[memoryview] = []
    for _ in range(300):
        in_use.append(memory.take(dice.randrange(1, 3 * SIZE) * dice.choice((1, 10, 100))))
        del in_use[: -dice.randrange(1, 9)]
        used = {id(each.obj) for each in in_use}
        assert len([each for each in memory._blocks if id(each) not in used]) <= UNUSED_MAX + 8
        assert all(len(each) <= FRAME_BYTES_MAX for each in memory._blocks)
    in_use.clear()
    memory.take(SIZE).release()
    assert len(memory._blocks) <= UNUSED_MAX + 1
    memory.drop_unused()
    assert len(memory._blocks) == 1


def test_buffered_frames_use_the_same_memory_in_turn() -> None:
    """A buffer of 64 MiB has sixteen of them."""
    memory = FrameMemory()
    buffered = [memory.take(SIZE) for _ in range(16)]
    known = {id(each.obj) for each in buffered}
    for _ in range(40):
        buffered.pop(0)
        buffered.append(memory.take(SIZE))
    assert {id(each.obj) for each in buffered} == known


def test_memory_that_is_in_use_stays_unchanged_after_it_is_dropped() -> None:
    memory = FrameMemory()
    held = memory.take(SIZE)
    held[:] = b"h" * SIZE
    other_buffers = [memory.take(SIZE) for _ in range(10)]
    for each in other_buffers:
        each[:] = bytes(len(each))
    del other_buffers, each
    memory.drop_unused(0)
    memory.take(SIZE)[:] = bytes(SIZE)
    assert held == b"h" * SIZE

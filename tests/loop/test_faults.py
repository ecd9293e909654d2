"""Exceptions of callbacks, which are passed to their owners."""

from __future__ import annotations

import pytest
from kafka_share_proxy.loop.faults import first_of, guard, is_network_trouble, serve


class Owner:
    """Owner whose callback raises a given exception."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.called: list[int] = []
        self.failures: list[Exception] = []

    def ready(self, mask: int) -> None:
        self.called.append(mask)
        if self.error is not None:
            raise self.error

    def failed(self, error: Exception) -> None:
        self.failures.append(error)


def test_all_others_are_served_when_one_raises() -> None:
    first, second, third = Owner(), Owner(ValueError("x")), Owner()
    serve([(1, 1), (2, 4), (3, 1)], {1: first.ready, 2: second.ready, 3: third.ready})
    assert [first.called, second.called, third.called] == [[1], [4], [1]]
    assert [str(error) for error in second.failures] == ["x"]
    assert first.failures == third.failures == []


def test_a_descriptor_closed_in_this_iteration_is_skipped() -> None:
    owner = Owner()
    serve([(1, 1), (2, 1)], {2: owner.ready})
    assert owner.called == [1]


def test_base_exception_is_not_caught() -> None:
    owner = Owner(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        serve([(1, 1)], {1: owner.ready})
    with pytest.raises(KeyboardInterrupt):
        guard(owner, lambda: owner.ready(1))
    assert owner.failures == []


def test_a_guarded_call_hands_its_exception_to_the_owner() -> None:
    owner = Owner(KeyError("y"))
    guard(owner, lambda: owner.ready(1))
    assert [type(error) for error in owner.failures] == [KeyError]


def test_network_errors_are_distinguished_from_bugs() -> None:
    assert is_network_trouble(ConnectionResetError())
    assert is_network_trouble(TimeoutError())
    assert not is_network_trouble(ValueError())


def test_a_nursery_ends_with_one_error_of_those_it_wrapped() -> None:
    """The caller need not know that two tasks used the connection."""
    error = ConnectionResetError()
    assert first_of(ExceptionGroup("", [ExceptionGroup("", [error, ValueError()])])) is error

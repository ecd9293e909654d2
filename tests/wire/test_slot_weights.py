"""The tagged field `SlotWeights`."""

from __future__ import annotations

from kafka_share_proxy.wire import slot_weights


def test_weights_are_read_as_they_were_written() -> None:
    assert slot_weights.weights_in(((1, b"other"), slot_weights.tag_of([0.25, 0.75]))) == (0.25, 0.75)


def test_a_response_without_the_field_or_with_a_malformed_one_has_no_weights() -> None:
    assert slot_weights.weights_in(()) == ()
    assert slot_weights.weights_in(((slot_weights.TAG, b"\xff"),)) == ()


def test_a_request_has_the_field_or_not() -> None:
    assert slot_weights.is_requested((slot_weights.REQUESTED,))
    assert not slot_weights.is_requested(((1, b""),))

"""Headers of a record, decoded when they are looked at."""

from __future__ import annotations

import pickle

import pytest
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records.record_headers import RecordHeaders, after_headers

RAW = b"\x02a\x02b\x06n\xc3\xa9\x01"


def headers() -> RecordHeaders:
    return RecordHeaders(RAW, 2)


def test_headers_are_a_sequence_of_names_and_values() -> None:
    record_headers = headers()
    assert len(record_headers) == 2
    assert list(record_headers) == [("a", b"b"), ("né", None)]
    assert (record_headers[0], record_headers[-1], record_headers[1:]) == (("a", b"b"), ("né", None), (("né", None),))
    assert ("a", b"b") in record_headers


def test_headers_are_decoded_when_they_are_read() -> None:
    """Their number is known without."""
    record_headers = headers()
    assert (len(record_headers), record_headers._decoded) == (2, None)
    assert record_headers[0] == ("a", b"b")
    assert (record_headers._decoded, record_headers._raw) == ((("a", b"b"), ("né", None)), b"")


def test_headers_equal_a_tuple_of_the_same_pairs() -> None:
    expected = (("a", b"b"), ("né", None))
    assert headers() == expected
    assert expected == headers()
    assert headers() == headers()
    assert headers() != expected[:1]
    assert headers() != RecordHeaders(RAW[:4], 1)
    assert hash(headers()) == hash(expected)
    assert repr(headers()) == repr(expected)
    assert pickle.loads(pickle.dumps(headers())) == expected


def test_bytes_that_are_no_text_are_shown_as_java_shows_them() -> None:
    assert RecordHeaders(b"\x04\xffa\x01", 1)[0] == ("\ufffda", None)


def test_the_end_of_unchecked_headers() -> None:
    assert after_headers(b"??" + RAW + b"??", 2, 2) == 2 + len(RAW)
    assert after_headers(b"", 0, 0) == 0


@pytest.mark.parametrize("raw", [b"\x01\x01", b"\x02a\x03", b"\x02a\x10b", b"\x10a\x01", b"\x02"])
def test_headers_that_do_not_fit_are_refused(raw: bytes) -> None:
    with pytest.raises((RemoteProtocolError, IndexError)):
        after_headers(raw, 0, 1)

"""Messages between a supervisor and a worker."""

import socket

import pytest
from kafka_share_proxy.app.workers import channel

LIMIT_S = 10.0


def ends() -> tuple[socket.socket, socket.socket]:
    """Both ends, which wait at most LIMIT_S."""
    pair = channel.pair()
    for end in pair:
        end.settimeout(LIMIT_S)
    return pair


def test_a_message_arrives_with_its_sockets() -> None:
    ours, theirs = ends()
    with ours, theirs, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        channel.send(ours, {"listen": ["127.0.0.1", 1]}, [listening])
        received = channel.receive(theirs)
        assert received is not None
        body, (passed,) = received
        with passed:
            assert body == {"listen": ["127.0.0.1", 1]}
            assert passed.getsockname() == listening.getsockname()
            assert not passed.get_inheritable()


def test_messages_keep_their_boundaries() -> None:
    ours, theirs = ends()
    with ours, theirs:
        for number in range(3):
            channel.send(ours, {"number": number})
        assert [channel.receive(theirs) for _ in range(3)] == [({"number": number}, []) for number in range(3)]


def test_the_end_of_the_other_side_is_none() -> None:
    ours, theirs = ends()
    with theirs:
        ours.close()
        assert channel.receive(theirs) is None


def test_a_message_that_is_too_large_is_refused_with_its_size() -> None:
    ours, theirs = ends()
    with ours, theirs, pytest.raises(OSError, match=r"a message of \d+ bytes .* at most 163840"):
        channel.send(ours, {"settings": "x" * channel.MESSAGE_BYTES_MAX})


def test_the_largest_message_fits() -> None:
    ours, theirs = ends()
    with ours, theirs:
        text = "x" * (channel.MESSAGE_BYTES_MAX - len('{"a": ""}'))
        channel.send(ours, {"a": text})
        assert channel.receive(theirs) == ({"a": text}, [])

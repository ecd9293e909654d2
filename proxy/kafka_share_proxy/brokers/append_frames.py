"""Frames of plain Produce requests for one topic, and of their responses, as the proxy's own producers use them.

How it works: a request for one partition, and the response that accepts it, have the same bytes each time but for a few
numbers. These bytes are taken once from the general codec, in the highest version used, which all supported brokers
have. Requests for several partitions, other versions and all other responses are left to the general codec.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

from kafka_share_proxy.brokers import producer_messages
from kafka_share_proxy.brokers.cluster_connection import CLIENT_ID
from kafka_share_proxy.brokers.producer_messages import PRODUCE_VERSION_MAX
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.codec.primitives import uvarint
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode

Appended = dict[int, tuple[ErrorCode, int]]
"""Error code and base offset, by partition."""

_PRODUCE = ApiKey.PRODUCE
_INT32 = Struct(">i")
_SIZE_BYTES = _INT32.size
_VARIABLE = b"\xde\xad\xbe\xef"
"""Bytes of each variable number in a sample. They are not UTF-8, so that no topic name contains them."""
_NUMBER = int.from_bytes(_VARIABLE, "big", signed=True)
_LONG = int.from_bytes(2 * _VARIABLE, "big", signed=True)


class AppendFrames:
    """Frames of Produce requests with acks=all and without a transaction, for one topic."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        sample = self._general_request(PRODUCE_VERSION_MAX, {_NUMBER: _VARIABLE})
        self._request_start, rest = sample[_SIZE_BYTES:].split(_VARIABLE, 1)
        """All bytes before the partition, except the size of the frame."""
        self._request_end = rest.split(_VARIABLE)[1]
        """All bytes after the batch."""
        self._fixed_bytes = len(self._request_start) + _INT32.size + len(self._request_end)
        response = messages.ProduceResponse
        entry = response.PartitionProduceResponse(
            index=_NUMBER, base_offset=_LONG, log_append_time_ms=_LONG, log_start_offset=_LONG
        )
        of_topic = response.TopicProduceResponse(name=topic, partition_responses=[entry])
        accepted = response(responses=[of_topic], throttle_time_ms=_NUMBER)
        sample = frames.response(_PRODUCE, PRODUCE_VERSION_MAX, _NUMBER, accepted)
        partition = _VARIABLE + _INT32.pack(NO_ERROR)[2:] + 6 * _VARIABLE
        self._response_start, rest = sample[2 * _SIZE_BYTES :].split(partition)
        """All bytes between the correlation id and the partition."""
        self._response_middle, self._response_end = rest.split(_VARIABLE)
        """All bytes between the offsets and the throttle time, and after it."""
        sizes = [len(each) for each in (self._response_start, self._response_middle, self._response_end)]
        self._response = Struct(">i{}sihqqq{}si{}s".format(*sizes))

    def request(self, version: int, batches: Mapping[int, bytes]) -> bytes:
        """Return the frame of a request. Its correlation id is 0. `batches`: by partition."""
        if len(batches) != 1 or version != PRODUCE_VERSION_MAX:
            return self._general_request(version, batches)
        ((partition, batch),) = batches.items()
        length = uvarint(len(batch) + 1)
        size = _INT32.pack(self._fixed_bytes + len(length) + len(batch))
        return b"".join((size, self._request_start, _INT32.pack(partition), length, batch, self._request_end))

    def response(self, version: int, frame: bytes) -> tuple[int, Appended]:
        """Return the correlation id and the results in a frame without size. Raises RemoteProtocolError."""
        if version == PRODUCE_VERSION_MAX and len(frame) == self._response.size:
            number, start, partition, code, offset, _, _, middle, _, end = self._response.unpack(frame)
            fixed = (start, code, middle, end)
            if fixed == (self._response_start, NO_ERROR, self._response_middle, self._response_end):
                return number, {partition: (NO_ERROR, offset)}
        number, response = frames.decode_response(_PRODUCE, version, frame)
        entries = producer_messages.by_partition(response)
        return number, {
            partition: (ErrorCode.of(entry.error_code), entry.base_offset) for partition, entry in entries.items()
        }

    def _general_request(self, version: int, batches: Mapping[int, bytes]) -> bytes:
        return frames.request(_PRODUCE, version, 0, CLIENT_ID, producer_messages.produce(self._topic, batches))

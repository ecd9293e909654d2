"""Keys of the records in cached chunks, for groups with key order (sharegroups/README.md rule 75).

They are computed once for each chunk, in a worker thread if that may take long. In a fleet the proxy that read the
records sends them (`far_records`).
"""

from __future__ import annotations

from functools import partial

from kafka_share_proxy.loop.interfaces import WorkersBusy
from kafka_share_proxy.reading.far_records import FarRecords
from kafka_share_proxy.sharegroups.fetch.head_reads import ShareChunk
from kafka_share_proxy.sharegroups.fetch.session_survey import Ready, Result, ShareFetching, Survey, survey_session
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.records.order_keys import RecordKeys, keys_in

INLINE_BYTES = 32 << 10
"""Bytes of uncompressed records whose keys are read without a thread: less than 0.1 ms."""
LARGE_BYTES = 1 << 20
"""Bytes of records above which the lane for large work is used."""


async def survey_with_keys(fetching: ShareFetching) -> Survey:
    """Survey a session, and read the keys of the ready records. Records that cannot be read become an error."""
    survey = await survey_session(fetching)
    survey.ready = [ready for ready in survey.ready if ready.chunk.keys is not None or await _learn(fetching, ready)]
    return survey


async def _learn(fetching: ShareFetching, ready: Ready) -> bool:
    chunk, services = ready.chunk, fetching.services
    if isinstance(chunk.records, FarRecords):
        chunk.keys = chunk.records.keys
        if chunk.keys is None:
            _refuse(fetching, ready, ErrorCode.REPLICA_NOT_AVAILABLE, "the proxy that read the records sent no keys")
        return chunk.keys is not None
    try:
        chunk.keys = await _keys(services, chunk, chunk.records)
    except WorkersBusy:
        return False  # the member's next request tries again
    except ProxyError as error:
        _refuse(fetching, ready, ErrorCode.CORRUPT_MESSAGE, str(error))
        return False
    return True


async def _keys(services: ShareServices, chunk: ShareChunk, records: memoryview) -> RecordKeys:
    first = chunk.batches[0].base_offset
    if len(records) <= INLINE_BYTES and not any(batch.compression for batch in chunk.batches):
        return keys_in(records, first)
    return await services.workers.run(partial(keys_in, records, first), chunk.key, is_large=len(records) > LARGE_BYTES)


def _refuse(fetching: ShareFetching, ready: Ready, code: ErrorCode, reason: str) -> None:
    fetching.results[ready.partition] = Result(code)
    topic = fetching.services.topology.topic_by_id(ready.partition.topic_id)
    fetching.services.notes(
        "share-order-keys-unreadable",
        group=fetching.group_id,
        partition=f"{ready.partition.topic_id.hex() if topic is None else topic.name}-{ready.partition.partition}",
        reason=reason,
    )

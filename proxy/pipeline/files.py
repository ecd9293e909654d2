"""Small files wherever Spark can write: a local folder, HDFS, an object store; through the JVM's own file systems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Files:
    """Files of one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = spark.sparkContext._jvm
        self._configuration = spark.sparkContext._jsc.hadoopConfiguration()

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        there: bool = self._system(path).exists(self._path(path))
        return there

    def read(self, path: str) -> str:
        """A whole file. Raises py4j's error: it is not there."""
        stream = self._system(path).open(self._path(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """A whole file, or none of it: who looks meanwhile sees no part."""
        system, temporary = self._system(path), self._path(f"{path}.new")
        stream = system.create(temporary, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        system.rename(temporary, self._path(path))

    def delete(self, path: str) -> None:
        """With all that is in it; harmless where nothing is."""
        self._system(path).delete(self._path(path), True)

    def names(self, path: str) -> list[str]:
        """What is in a folder, without what is in its folders; nothing where there is none."""
        system = self._system(path)
        if not system.exists(self._path(path)):
            return []
        return sorted(status.getPath().getName() for status in system.listStatus(self._path(path)))

    def move(self, path: str, folder: str) -> bool:
        """Move a file to a folder, which is made where there is none; whether that could be done."""
        system = self._system(path)
        self.make(folder)
        moved: bool = system.rename(self._path(path), self._path(folder))
        return moved

    def make(self, path: str) -> None:
        """A folder, and those it is in; harmless where it is."""
        self._system(path).mkdirs(self._path(path))

    def local(self, path: str) -> str | None:
        """Where programs find it, on this machine or mounted; None: on another file system."""
        system = self._system(path)
        if system.getUri().getScheme() != "file":
            return None
        return str(system.makeQualified(self._path(path)).toUri().getPath())

    def is_compressed(self, path: str) -> bool:
        """Whether Spark opens it by what its name ends with."""
        known = self._jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(self._configuration)
        return known.getCodec(self._path(path)) is not None

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._configuration)

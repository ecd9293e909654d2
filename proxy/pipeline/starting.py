"""Where a stream starts, resolved once and kept beside its checkpoint (pipeline/README.md rules 18 and 35)."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from proxy.pipeline.cluster import ClusterClient
from proxy.pipeline.files import Files
from proxy.pipeline.options import EARLIEST, BadOption, read_options
from proxy.pipeline.planning import PlannedRead
from proxy.pipeline.stream_offsets import written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from proxy.pipeline.share_options import ShareSourceOptions

FILE = "keyrange-start.json"
SHARE_FILE = "sharegroup.json"
VERSION = 1


class KeptStart(NamedTuple):
    """What a stream began with, the same at every start."""

    stream_id: str
    """Of this checkpoint alone."""
    topic: str
    offsets: str
    """For startingOffsets."""

    def options(self, given: Mapping[str, str]) -> dict[str, str]:
        """The options with this start in place of theirs."""
        kept = {name: value for name, value in given.items() if name.lower() != "startingoffsets"}
        return kept | {"startingOffsets": self.offsets}


class KeptShare(NamedTuple):
    """Whom a checkpoint of a share group belongs to, the same at every start."""

    stream_id: str
    """Of this checkpoint alone."""
    group: str
    topic: str


def kept_share(spark: SparkSession, options: ShareSourceOptions, checkpoint: str) -> KeptShare:
    """What is kept beside a checkpoint; kept at the first start.

    Args:
        spark: a session.
        options: of the source.
        checkpoint: its folder.

    Raises:
        BadOption: the checkpoint is that of another group or topic.
    """
    files, path = Files(spark), f"{checkpoint.rstrip('/')}/{SHARE_FILE}"
    topics = ",".join(options.source.topics)
    if not files.exists(path):
        document = {"v": VERSION, "id": secrets.token_hex(4), "group": options.group, "topic": topics}
        files.write(path, json.dumps(document))
    document = json.loads(files.read(path))
    kept = KeptShare(document["id"], document["group"], document["topic"])
    if (kept.group, kept.topic) != (options.group, topics):
        raise BadOption(
            f"the checkpoint {checkpoint} is that of group {kept.group} and topic {kept.topic}, not of group "
            f"{options.group} and {topics}: take another folder"
        )
    return kept


def kept_start(spark: SparkSession, given: Mapping[str, str], checkpoint: str) -> KeptStart:
    """What is kept beside a checkpoint; at the first start it is resolved and kept, before anything is read.

    Args:
        spark: a session.
        given: options of the source.
        checkpoint: its folder.

    Raises:
        BadOption: the checkpoint is that of another topic. ProxyError: the cluster does not tell.
    """
    files, path = Files(spark), f"{checkpoint.rstrip('/')}/{FILE}"
    checked = read_options(given)
    topics = ",".join(checked.topics)
    if files.exists(path):
        document = json.loads(files.read(path))
        kept = KeptStart(document["id"], document["topic"], json.dumps(document["offsets"]))
        if kept.topic != topics:
            raise BadOption(
                f"the checkpoint {checkpoint} is that of {kept.topic}, not of {topics}: take another folder"
            )
        return kept
    with ClusterClient(checked) as cluster:
        planned = PlannedRead(cluster, checked)
        offsets = written(planned.resolved(checked.starting, planned.places(), EARLIEST))["t"]
    document = {"v": VERSION, "id": secrets.token_hex(4), "topic": topics, "offsets": offsets}
    files.write(path, json.dumps(document))
    return KeptStart(document["id"], topics, json.dumps(offsets))

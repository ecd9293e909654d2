"""Start of a stream, resolved once and stored next to its checkpoint (pipeline/README.md rules 18 and 35)."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient
from kafka_share_proxy.pipeline.source.options import EARLIEST, BadOption, read_options
from kafka_share_proxy.pipeline.source.split_planning import PlannedRead
from kafka_share_proxy.pipeline.source.stream_offsets import encode_offsets
from kafka_share_proxy.pipeline.tables.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_share_proxy.pipeline.share.share_options import ShareSourceOptions

FILE = "keyrange-start.json"
SHARE_FILE = "sharegroup.json"
VERSION = 1


class KeptStart(NamedTuple):
    """Start of a stream, the same after each restart."""

    stream_id: str
    topic: str
    offsets: str
    topic_ids: str = "{}"
    """Value of the option topicIds; "{}" if an earlier release stored the start."""

    def options(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the given options with this start."""
        other_options = {
            name: value for name, value in given.items() if name.lower() not in ("startingoffsets", "topicids")
        }
        return other_options | {"startingOffsets": self.offsets, "topicIds": self.topic_ids}


class KeptShare(NamedTuple):
    """Group and topic of a checkpoint of a share group, the same after each restart."""

    stream_id: str
    group: str
    topic: str


def kept_share(spark: SparkSession, options: ShareSourceOptions, checkpoint: str) -> KeptShare:
    """Store group and topic at the first start.

    Raises BadOption if the checkpoint belongs to another group or topic.
    """
    files, path = Files(spark), f"{checkpoint.rstrip('/')}/{SHARE_FILE}"
    topics = ",".join(options.source.topics)
    if not files.exists(path):
        document = {"v": VERSION, "id": secrets.token_hex(4), "group": options.group, "topic": topics}
        files.write(path, json.dumps(document))
    document = json.loads(files.read(path))
    share = KeptShare(document["id"], document["group"], document["topic"])
    if (share.group, share.topic) != (options.group, topics):
        raise BadOption(
            f"the checkpoint {checkpoint} is that of group {share.group} and topic {share.topic}, not of group "
            f"{options.group} and {topics}: take another folder"
        )
    return share


def kept_start(spark: SparkSession, given: Mapping[str, str], checkpoint: str) -> KeptStart:
    """Return the start offsets of a stream. The first start resolves and stores them before anything is read.

    Raises BadOption if the checkpoint belongs to another topic, and ProxyError if the offsets could not be read.
    """
    files, path = Files(spark), f"{checkpoint.rstrip('/')}/{FILE}"
    checked = read_options(given)
    topics = ",".join(checked.topics)
    if files.exists(path):
        document = json.loads(files.read(path))
        ids = json.dumps(document.get("ids", {}))
        start = KeptStart(document["id"], document["topic"], json.dumps(document["offsets"]), ids)
        if start.topic != topics:
            raise BadOption(
                f"the checkpoint {checkpoint} is that of {start.topic}, not of {topics}: take another folder"
            )
        return start
    with BlockingClusterClient(checked) as cluster:
        planned = PlannedRead(cluster, checked)
        resolved = planned.resolve(checked.starting, planned.partitions(), EARLIEST)
        stored = encode_offsets(resolved, planned.topic_ids())
    document = {"v": VERSION, "id": secrets.token_hex(4), "topic": topics, "offsets": stored["t"], "ids": stored["ids"]}
    files.write(path, json.dumps(document))
    return KeptStart(document["id"], topics, json.dumps(stored["t"]), json.dumps(stored["ids"]))

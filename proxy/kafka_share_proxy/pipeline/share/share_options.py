"""Options of the data source `sharegroup`, validated before any connection is opened.

See pipeline/README.md rules 1 and 42.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kafka_share_proxy.pipeline.source.options import NAMES, BadOption, SourceOptions, check_names, read_options

OFFSETS_MAX = 100_000
"""Default of `maxOffsetsPerTrigger`: after a crash, that many may be delivered again."""

GROUP, ACQUIRER = "group", "acquirer"
_GROUP_SAYS = "the share group says what is read (share.auto.offset.reset of the group; alter its offsets)"
REFUSED = {
    "assign": "the share group assigns partitions: say topic=orders",
    "offsetRanges": _GROUP_SAYS,
    "startingOffsets": _GROUP_SAYS,
    "endingOffsets": _GROUP_SAYS,
    "isolationLevel": "the setting share.isolation.level of the group says it",
}
"""Options of `keyrange` that `sharegroup` does not support, with the reason."""
SHARE_NAMES = (GROUP, *(name for name in NAMES if name not in REFUSED), ACQUIRER)


@dataclass(frozen=True, kw_only=True)
class ShareSourceOptions:
    """Validated options. Plain values, because they are sent to executors."""

    group: str
    source: SourceOptions
    """Options of the tasks' reads. Tasks read all given offsets: a share group skips aborted records when it acquires.
    """
    acquirer: str = ""
    """Path of the socket of the handover in the job's process. Set by ShareStream."""
    max_offsets: int = OFFSETS_MAX


def read_share_options(options: Mapping[str, str]) -> ShareSourceOptions:
    """Validate the options of a reader. Raises BadOption."""
    refused = {name.lower(): reason for name, reason in REFUSED.items()}
    for name in options:
        if name.lower() in refused:
            raise BadOption(f"{name}: {refused[name.lower()]}")
    check_names(options, SHARE_NAMES)
    own = {name.lower(): str(value) for name, value in options.items() if name.lower() in (GROUP, ACQUIRER)}
    source = read_options({name: value for name, value in options.items() if name.lower() not in own})
    if not own.get(GROUP, "").strip():
        raise BadOption("group is missing: the id of the share group")
    return ShareSourceOptions(
        group=own[GROUP],
        source=replace(source, is_committed=False),
        acquirer=own.get(ACQUIRER, ""),
        max_offsets=source.max_offsets_per_trigger or OFFSETS_MAX,
    )

"""Options of the data source `sharegroup`, checked before anything is dialled (pipeline/README.md rules 1 and 42)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from proxy.pipeline.options import NAMES, BadOption, SourceOptions, check_names, read_options

OFFSETS_MAX = 100_000
"""Offsets of one batch unless `maxOffsetsPerTrigger` says otherwise: as many may come again after a crash."""

GROUP, ACQUIRER = "group", "acquirer"
_GROUP_SAYS = "the share group says what is read (share.auto.offset.reset of the group; alter its offsets)"
REFUSED = {
    "assign": "the share group assigns partitions: say topic=orders",
    "offsetRanges": _GROUP_SAYS,
    "startingOffsets": _GROUP_SAYS,
    "endingOffsets": _GROUP_SAYS,
    "isolationLevel": "the setting share.isolation.level of the group says it",
}
"""Options of `keyrange` that have no meaning here, and why."""
SHARE_NAMES = (GROUP, *(name for name in NAMES if name not in REFUSED), ACQUIRER)


@dataclass(frozen=True, kw_only=True)
class ShareSourceOptions:
    """What was checked; plain values, which travel."""

    group: str
    source: SourceOptions
    """How tasks read. Share groups decide about aborted records when they acquire, so tasks read all they are told."""
    acquirer: str = ""
    """Path of the socket at which the job's process answers; set by ShareStream."""
    max_offsets: int = OFFSETS_MAX


def read_share_options(given: Mapping[str, str]) -> ShareSourceOptions:
    """Check all of it. Raises BadOption.

    Args:
        given: names in any case, values as text.
    """
    refused = {name.lower(): reason for name, reason in REFUSED.items()}
    for name in given:
        if name.lower() in refused:
            raise BadOption(f"{name}: {refused[name.lower()]}")
    check_names(given, SHARE_NAMES)
    own = {name.lower(): str(value) for name, value in given.items() if name.lower() in (GROUP, ACQUIRER)}
    source = read_options({name: value for name, value in given.items() if name.lower() not in own})
    if not own.get(GROUP, "").strip():
        raise BadOption("group is missing: the id of the share group")
    return ShareSourceOptions(
        group=own[GROUP],
        source=replace(source, is_committed=False),
        acquirer=own.get(ACQUIRER, ""),
        max_offsets=source.max_offsets_per_trigger or OFFSETS_MAX,
    )

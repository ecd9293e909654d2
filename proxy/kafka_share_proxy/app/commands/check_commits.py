"""`check` for individual commits: whether they are served, and which rights the proxy's own identity lacks.

Missing rights do not keep the proxy from working: without them, commits with ranges in their metadata are refused, and
everything else is served.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kafka_share_proxy.app.commands import check_state
from kafka_share_proxy.app.commands.check_state import StateRights
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.brokers.own_client import OwnClient
from kafka_share_proxy.commits.state_records import INDIVIDUAL_COMMITS


async def send_request(own: OwnClient) -> StateRights:
    """Query the rights of the proxy's own identity, without changes. Raises ProxyError without a response of any
    server.
    """
    return await check_state.send_request(own, INDIVIDUAL_COMMITS)


def judge(config: Config, found: StateRights | None) -> Iterator[str]:
    """Yield a remark for each problem. `found` is None if there is no identity to query with."""
    if not _is_stored(config):
        return
    for text in check_state.judge(found and replace(found, unsafe=""), INDIVIDUAL_COMMITS):  # see `obstacles`
        yield text if found is None else f"individual commits will be off: {text}"


def obstacles(config: Config, found: StateRights | None) -> Iterator[str]:
    """Yield the reason why the cluster would lose ranges that the proxy has confirmed."""
    if _is_stored(config) and found is not None and found.unsafe:
        yield f"individual commits would be lost: {found.unsafe}"


def risks(config: Config, found: StateRights | None) -> tuple[str, ...]:
    """Return the risks to stored ranges."""
    return found.risks if _is_stored(config) and found is not None else ()


def _is_stored(config: Config) -> bool:
    return config.commits.serve and config.commits.state != "memory"


def line(config: Config, found: StateRights | None) -> str:
    """Return a sentence for people on how individual commits are served."""
    if not config.commits.serve:
        return "Individual commits: off (commits.serve)."
    if any(judge(config, found)) or any(obstacles(config, found)):
        return "Individual commits: will be off, for the reasons above."
    whose = "every group" if config.commits.groups == "*" else f"groups {config.commits.groups}"
    topic = INDIVIDUAL_COMMITS.topic
    where = f"in topic {topic}" if config.commits.state == "topic" else "in memory, until the proxy ends"
    return f"Individual commits: of {whose}, up to {config.commits.ranges_max} ranges of a partition, kept {where}."

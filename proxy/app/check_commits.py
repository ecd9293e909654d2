"""What `check` says about individual commits: whether they are served, and what the proxy's own identity lacks.

Nothing of it keeps the proxy from working: without these rights texts of ranges are refused, and everything else is
served.
"""

from __future__ import annotations

from collections.abc import Iterator

from proxy.app import check_state
from proxy.app.check_state import StateRights
from proxy.app.config import Config
from proxy.brokers.own_client import OwnClient
from proxy.commits.state_records import INDIVIDUAL_COMMITS


async def ask(own: OwnClient) -> StateRights:
    """Ask with the proxy's own identity; changes nothing. Raises ProxyError when no server answers."""
    return await check_state.ask(own, INDIVIDUAL_COMMITS)


def judge(config: Config, found: StateRights | None) -> Iterator[str]:
    """A remark for each thing that does not work; `found` None: there is no identity to ask with."""
    if not config.commits.serve or config.commits.state == "memory":
        return
    for text in check_state.judge(found, INDIVIDUAL_COMMITS):
        yield text if found is None else f"individual commits will be off: {text}"


def line(config: Config) -> str:
    """How individual commits are served, for a person."""
    if not config.commits.serve:
        return "Individual commits: off (commits.serve)."
    whose = "every group" if config.commits.groups == "*" else f"groups {config.commits.groups}"
    topic = INDIVIDUAL_COMMITS.topic
    where = f"in topic {topic}" if config.commits.state == "topic" else "in memory, until the proxy ends"
    return f"Individual commits: of {whose}, up to {config.commits.ranges_max} ranges of a partition, kept {where}."

"""`check` for individual commits: whether they are served, and which rights the proxy's own identity lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.commits.settings import Commits
from kafka_share_proxy.commits.state_records import INDIVIDUAL_COMMITS
from kafka_share_proxy.feature import state_rights
from kafka_share_proxy.feature.checks import CheckReport
from kafka_share_proxy.feature.state_rights import StateRights


class CommitCheck:
    """See FeatureCheck."""

    name = "individual commits"

    def __init__(self, settings: Commits) -> None:
        self._settings = settings

    async def query(self, own: ClusterClient, cluster: ClusterSnapshot) -> StateRights:  # noqa: ARG002 - as checks are called
        return await state_rights.query_rights(own, INDIVIDUAL_COMMITS)

    def report(self, rights: StateRights | None, cluster: ClusterSnapshot) -> CheckReport:  # noqa: ARG002 - as checks are called
        settings = self._settings
        return CheckReport(
            line=line(settings, rights),
            obstacles=tuple(obstacles(settings, rights)),
            risks=risks(settings, rights),
            remarks=tuple(judge(settings, rights)),
        )


def judge(settings: Commits, rights: StateRights | None) -> Iterator[str]:
    """Yield remarks. `rights`: None without an identity."""
    if not _is_stored(settings):
        return
    for text in state_rights.obstacles(rights and replace(rights, unsafe=""), INDIVIDUAL_COMMITS):  # see `obstacles`
        yield text if rights is None else f"individual commits will be off: {text}"


def obstacles(settings: Commits, rights: StateRights | None) -> Iterator[str]:
    """Yield why the cluster would lose ranges that the proxy has confirmed."""
    if _is_stored(settings) and rights is not None and rights.unsafe:
        yield f"individual commits would be lost: {rights.unsafe}"


def risks(settings: Commits, rights: StateRights | None) -> tuple[str, ...]:
    """Return the risks to stored ranges."""
    return rights.risks if _is_stored(settings) and rights is not None else ()


def _is_stored(settings: Commits) -> bool:
    return settings.serve and settings.state != "memory"


def line(settings: Commits, rights: StateRights | None) -> str:
    if not settings.serve:
        return "Individual commits: off (commits.serve)."
    if any(judge(settings, rights)) or any(obstacles(settings, rights)):
        return "Individual commits: will be off, for the reasons above."
    whose = "every group" if settings.groups == "*" else f"groups {settings.groups}"
    topic = INDIVIDUAL_COMMITS.topic
    where = {
        "topic": f"in topic {topic}",
        "metadata": f"in commit metadata, or in topic {topic} if they do not fit",
        "memory": "in memory, until the proxy ends",
    }[settings.state]
    return f"Individual commits: of {whose}, up to {settings.ranges_max} ranges of a partition, kept {where}."

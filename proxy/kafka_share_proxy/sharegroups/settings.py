"""Settings `share_groups.*`: which side serves share groups, and their bounds here."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from kafka_share_proxy.feature.settings import Kept, Path, Seconds, Section, kept_in_fleet
from kafka_share_proxy.sharegroups.model.broker_limits import BrokerShareLimits, InvalidShareLimits, broker_names


class RenewalLimit(Section):
    """Limits on the time for which members of some groups may keep records by renewing their locks."""

    groups: str = "*"
    """A group id, or a pattern with * and ?."""
    renewals: int | None = Field(None, ge=1, le=1_000_000)
    """Number of renewals that are granted to one delivery."""
    held_s: Seconds | None = None
    """Time after which a held record gets no further renewal."""


class ServeGroups(Section):
    """A rule that says where some share groups are served."""

    groups: str = "*"
    """A group id, or a pattern with * and ?."""
    serve: Literal["auto", "local", "upstream"] = "auto"
    """The value of share_groups.serve for these groups."""


class DeadLetters(Section):
    """Topics for dead letters of share groups that are served here (errors.deadletterqueue.topic.name of the group)."""

    topics: tuple[str, ...] = ("dlq.*",)
    """Topics that may get dead letters where the brokers do not have the topic setting
    errors.deadletterqueue.group.enable (before 4.4): names, or patterns with * and ?."""
    auto_create_topics: bool = False
    """Create missing topics whose names begin with `topic_name_prefix`, as Kafka 4.4 does with
    errors.deadletterqueue.auto.create.topics.enable."""
    topic_name_prefix: str = "dlq."
    """Prefix of the topics that are created."""
    copy_headers: bool = False
    """Copy headers and timestamp of the record too, if the group copies records. Kafka never does."""

    def mistakes(self, *, is_fleet: bool) -> Iterator[tuple[Path, str]]:  # noqa: ARG002 - for every section
        if self.auto_create_topics and (not self.topic_name_prefix or self.topic_name_prefix.startswith("__")):
            yield ("topic_name_prefix",), "must not be empty or begin with __: names of internal topics do"


class ShareGroups(Section):
    """Placement of share groups, and the bounds of those served here."""

    serve: Literal["auto", "local", "upstream"] = "auto"
    """auto: a group with state here stays here, any other is on the brokers if every one of them can serve it. local:
    here. upstream: always forwarded."""
    serve_by_group: tuple[ServeGroups, ...] = ()
    """List of {groups: PATTERN, serve: auto|local|upstream}. The first that matches a group decides, else `serve`."""
    state: Kept = "topic"
    """topic: in a compacted topic of the cluster, where it survives this proxy. memory: gone when the proxy ends."""
    state_wait_s: Annotated[float, Field(ge=2, le=300, allow_inf_nan=False)] = 20.0
    """Seconds that a request of a tool (settings, offsets, deletion) waits for state that is being loaded."""
    broker: dict[str, Any] = Field(default_factory=dict)
    """The brokers' `group.share.*` settings, with Kafka's names, defaults and bounds."""
    renewal_limits: tuple[RenewalLimit, ...] = ()
    """List of {groups: PATTERN, renewals: N, held_s: S}. The first that matches a group bounds its renewals, which are
    refused with 121 then. Without one they are unbounded, as in Kafka."""
    dead_letters: DeadLetters = DeadLetters()
    """Topics for dead letters."""

    dotted_names: ClassVar[Mapping[str, Collection[str]]] = {"broker": broker_names()}

    def mistakes(self, *, is_fleet: bool) -> Iterator[tuple[Path, str]]:
        if is_fleet:
            yield from kept_in_fleet(self.state)
        yield from ((("dead_letters", *path), text) for path, text in self.dead_letters.mistakes(is_fleet=is_fleet))
        try:
            _ = self.limits
        except InvalidShareLimits as error:
            for line in str(error).splitlines():
                name, separator, text = line.strip().partition(":")
                known = separator and name.startswith("group.share")
                yield ("broker", name if known else ""), text.strip() if known else line.strip()

    def named_values(self, name: str) -> Mapping[str, tuple[Any, str]] | None:
        if name != "broker":
            return super().named_values(name)
        limits = BrokerShareLimits()
        return {each: (limits.value(each), "") for each in broker_names()}

    @cached_property
    def limits(self) -> BrokerShareLimits:
        """`broker`, checked and with its defaults. Raises InvalidShareLimits with every mistake."""
        return BrokerShareLimits.check(self.broker)

"""Settings `share_groups.*`: which side serves share groups, and their bounds here."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field

from kafka_share_proxy.feature.settings import Kept, Seconds, Section
from kafka_share_proxy.sharegroups.model.broker_limits import BrokerShareLimits


class RenewalLimit(Section):
    """How long members of some groups may keep records by renewing their locks."""

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


class ShareGroups(Section):
    """Where share groups live, and the bounds of those that live here."""

    serve: Literal["auto", "local", "upstream"] = "auto"
    """auto: a group with state here stays here; any other is on the brokers if every one of them can serve it."""
    serve_by_group: tuple[ServeGroups, ...] = ()
    """Of these the first that names a group says where it lives; for all others it is `serve`."""
    state: Kept = "topic"
    """topic: in a compacted topic of the cluster, where it survives this proxy; memory: gone when the proxy ends."""
    state_wait_s: Annotated[float, Field(ge=2, le=300, allow_inf_nan=False)] = 20.0
    """How long a request of a tool (settings, offsets, deletion) waits for state that is being loaded."""
    broker: dict[str, Any] = Field(default_factory=dict)
    """The brokers' `group.share.*` settings, under Kafka's names."""
    renewal_limits: tuple[RenewalLimit, ...] = ()
    """Of these the first that names a group bounds its renewals (refused with 121 then); none: unbounded, as Kafka."""

    @cached_property
    def limits(self) -> BrokerShareLimits:
        """`broker`, checked and with its defaults. Raises InvalidShareLimits with every mistake."""
        return BrokerShareLimits.check(self.broker)

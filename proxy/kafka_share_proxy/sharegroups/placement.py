"""Placement of share groups: local, or on brokers that support share groups as well (sharegroups/README.md rules 1-3).

The rules are fixed while the process lives. The brokers' support may be noticed later, for all connections together.
While the state is being loaded, requests wait (`while_loading`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from kafka_share_proxy.durable.gate import StateGate
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.fleet.group_owners import HeldAnywhere, PeerLost
from kafka_share_proxy.forwarding.dispatch.declared_api import HOLD_MAX_S, DeclaredApi, Needs, Served
from kafka_share_proxy.forwarding.dispatch.early_matches import ByGroupId, EveryRequest
from kafka_share_proxy.forwarding.dispatch.routes import Handler
from kafka_share_proxy.forwarding.dispatch.split_requests import Splits
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import decoded, reply, send_upstream
from kafka_share_proxy.loop.waiting import settled_within
from kafka_share_proxy.sharegroups import followed_everywhere
from kafka_share_proxy.sharegroups.apis.held_groups import any_entry
from kafka_share_proxy.sharegroups.services import FEATURE, ShareServices
from kafka_share_proxy.sharegroups.while_loading import group_loaded
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode

Serve = Literal["auto", "local", "upstream"]

AT_BROKERS_MAX = 100_000
"""Maximum number of groups of the brokers that a proxy of a fleet remembers. Beyond it, owners are queried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRule:
    """Placement of the groups that match a pattern."""

    groups: str = "*"
    """Group id, or a pattern with * and ?."""
    serve: Serve = "auto"


@dataclass(slots=True)
class ShareRules:
    """Placement rules, and whether the brokers support share groups."""

    native: bool
    """Never becomes False again: groups on the brokers would be created here once more."""
    rules: tuple[ServeRule, ...] = ()
    """The first rule that matches a group decides. The last one matches all groups."""
    lacking: str = ""
    """Sentences about brokers that cannot serve share groups, empty if none is known."""

    def serve(self, group_id: str) -> Serve:
        return next((rule.serve for rule in self.rules if fnmatchcase(group_id, rule.groups)), "auto")

    @property
    def are_mixed(self) -> bool:
        """True if some groups may be local and others on the brokers."""
        placements = {"either" if rule.serve == "auto" and self.native else rule.serve for rule in self.rules}
        return (
            "either" in placements
            or len({"local" if placement == "auto" else placement for placement in placements}) > 1
        )


class ShareChoice:
    """Decides for each group whether it is served locally."""

    def __init__(
        self,
        rules: ShareRules,
        held: HeldAnywhere,
        gate: StateGate,
        followed: Container[str] = frozenset(),
        at_brokers: Container[str] | None = None,
    ) -> None:
        """`followed`: groups of the brokers whose requests are followed here. `at_brokers`: in a fleet, groups that
        their owners do not hold. None: not in a fleet.
        """
        self._rules, self._held, self._gate, self._followed = rules, held, gate, followed
        self._at_brokers = at_brokers

    def is_local(self, group_id: str) -> bool:
        """Return True if requests of the group are served here: it is placed here, or has state here."""
        if group_id in self._held:
            return True
        serve = self._rules.serve(group_id)
        return serve == "local" or not self._rules.native

    def may_be_local(self, group_id: str) -> bool:
        """Return True if `is_local`, or if the group's state is being loaded and may be local, or if it is followed."""
        return (
            self.is_local(group_id)
            or self._gate.is_loading(group_id)
            or group_id in self._followed
            or (self._at_brokers is not None and group_id not in self._at_brokers)
        )

    def refusal(self, group_id: str) -> tuple[ErrorCode, str] | None:
        """Return why a group that is served here accepts no new members. None if it does."""
        if self._rules.serve(group_id) != "upstream":
            return None
        if group_id in self._held:
            text = "it has state at the proxy, and share_groups.serve_by_group sends it to the brokers"
            return ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not served: {text}."
        text = "share_groups.serve_by_group sends it to the brokers, which have no share groups"
        return ErrorCode.UNSUPPORTED_VERSION, f"Group {group_id} is not served: {text}."


def chosen(api: DeclaredApi[ShareServices], served: Served, choice: ShareChoice, services: ShareServices) -> Served:
    """Restrict an API to the groups that are placed here. The brokers serve the rest.

    An API that finds its groups in the bytes itself (`wants`), or that no owner serves, is returned unchanged.
    """
    if api.needs is not Needs.OWNER or api.wants is not None:
        return served
    if api.splits is None:
        return Served(_of_one(served.handler, choice, services), ByGroupId(choice.may_be_local))
    handler = _of_several(served.handler, api.splits, choice, services)
    return Served(handler, EveryRequest(), any_entry(api.splits.groups, choice.may_be_local))


# Requests about one group


def _of_one(handler: Handler, choice: ShareChoice, services: ShareServices) -> Handler:
    async def handle(call: Call[Any]) -> ResponseFrame | Message | None:
        group_id = call.message.group_id or ""
        await _known(services, (group_id,))
        followed = followed_everywhere.current(services, group_id)
        if followed is not None:
            await followed.until_it_goes_on()
            followed = followed_everywhere.current(services, group_id)
            if followed is not None and not choice.is_local(group_id):
                return await followed.serve(call)
        if not await _is_here(choice, services, group_id):
            return None
        refusal = (
            choice.refusal(group_id)
            if call.key == ApiKey.SHARE_GROUP_HEARTBEAT and call.message.member_epoch == 0
            else None
        )
        if refusal is not None:
            services.notes("share-group-not-served", group_id=group_id, reason=refusal[1])
            response = messages.ShareGroupHeartbeatResponse
            return reply(call, response(error_code=refusal[0], error_message=refusal[1]))
        return await handler(call)

    return handle


async def _is_here(choice: ShareChoice, services: ShareServices, group_id: str) -> bool:
    """Return True if a proxy serves the group, or must refuse because it cannot be known (fleet/README.md rule 20)."""
    if services.fleet is None or choice.is_local(group_id) or not choice.may_be_local(group_id):
        return choice.may_be_local(group_id)
    partition = services.gate.partition_of(group_id)
    if not services.gate.lets_in((partition,)):
        owner = services.fleet.owner(partition)
        if owner is None:
            return True
        known = owner.knows(FEATURE, group_id)
        try:
            if not await settled_within(services.timers, HOLD_MAX_S, known) or known.result():
                return True
        except PeerLost:
            return True
    if len(services.at_brokers) >= AT_BROKERS_MAX:
        del services.at_brokers[next(iter(services.at_brokers))]
    services.at_brokers[group_id] = None
    return choice.is_local(group_id)


def at_owner(api: DeclaredApi[ShareServices], handler: Handler, choice: ShareChoice) -> Handler:
    """Let the owner in a fleet refuse requests about a group that the brokers serve, until their proxy knows it."""
    if api.splits is not None or api.respond_unavailable is None:
        return handler
    respond_unavailable = api.respond_unavailable

    async def handle(call: Call[Any]) -> ResponseFrame | Message | None:
        if choice.is_local(call.message.group_id or ""):
            return await handler(call)
        return await respond_unavailable(call, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The brokers serve the group.")

    return handle


async def _known(services: ShareServices, group_ids: Iterable[str]) -> None:
    """Wait for a bounded time while the groups' state is being loaded. After that the gate refuses."""
    loading = [state_partition(name) for name in group_ids if services.gate.is_loading(name)]
    if loading:
        await group_loaded(services, loading)


# Requests about several


def _of_several(handler: Handler, splits: Splits, choice: ShareChoice, services: ShareServices) -> Handler:
    async def handle(call: Call[Any]) -> ResponseFrame | Message | None:
        entries = splits.entries(call.message)
        await _known(services, splits.groups(call.message))
        own_entries, broker_entries = list[Any](), list[Any]()
        for entry in entries:
            name = splits.group_of(entry)
            (own_entries if name is not None and await _is_here(choice, services, name) else broker_entries).append(
                entry
            )
            await call.work.step()
        if not own_entries:
            return None
        response = await handler(splits.about(call, own_entries))
        if not broker_entries or response is None:
            return response
        broker_response: Message = await send_upstream(call, splits.about(call, broker_entries).message)
        responses: list[Message] = [broker_response, await decoded(call, response)]
        return await splits.joined(call, responses)

    return handle

"""Common declarations of the requests about configurations: the resources that they list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from kafka_share_proxy.forwarding.dispatch.routes import Picks
from kafka_share_proxy.forwarding.dispatch.split_requests import Splits
from kafka_share_proxy.sharegroups.apis.group_configs import GROUP, NamesResource, is_group_resource, name_of
from kafka_share_proxy.sharegroups.apis.held_groups import any_entry
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.definitions import messages

_NamesResources: TypeAlias = (
    "messages.DescribeConfigsRequest | messages.IncrementalAlterConfigsRequest | messages.AlterConfigsRequest"
)

GROUPS_MAX = 2_000
"""Maximum number of groups in one request. Each costs one request to a broker."""


def names_group_resource(_: ShareServices) -> Picks:
    """`DeclaredApi.picks`: select requests that name a GROUP resource."""
    return any_entry(_resources, is_group_resource)


def _resources(request: _NamesResources) -> Sequence[NamesResource]:
    return request.resources


def by_group_resource(responses: str) -> Splits:
    """`DeclaredApi.splits` of requests about configurations. `responses`: name of the list in the response."""
    return Splits("resources", _group, responses, name_of, name_of)


def _group(entry: NamesResource) -> str | None:
    return entry.resource_name if entry.resource_type == GROUP else None

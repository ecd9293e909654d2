"""What the requests about configurations have in common in their declarations: the resources that they list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from proxy.forwarding.routes import Picks
from proxy.forwarding.split_requests import Splits
from proxy.sharegroups.apis.group_configs import GROUP, NamesResource, is_group_resource, name_of
from proxy.sharegroups.apis.held_groups import any_entry
from proxy.sharegroups.services import ShareServices
from proxy.wire import messages

_NamesResources: TypeAlias = (
    "messages.DescribeConfigsRequest | messages.IncrementalAlterConfigsRequest | messages.AlterConfigsRequest"
)

GROUPS_MAX = 2_000
"""Groups in one request: each costs a question upstream."""


def names_group_resource(_: ShareServices) -> Picks:
    """`DeclaredApi.picks`: requests that name a resource which may have anything for us."""
    return any_entry(_resources, is_group_resource)


def _resources(request: _NamesResources) -> Sequence[NamesResource]:
    return request.resources


def by_group_resource(answers: str) -> Splits:
    """`DeclaredApi.splits` of requests about configurations; `answers`: the list in the response."""
    return Splits("resources", _group, answers, name_of, name_of)


def _group(entry: NamesResource) -> str | None:
    return entry.resource_name if entry.resource_type == GROUP else None

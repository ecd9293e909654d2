"""What the requests about configurations have in common in their declarations: the resources that they list."""

from __future__ import annotations

from typing import Any

from proxy.forwarding.routes import Picks
from proxy.forwarding.split_requests import Splits
from proxy.sharegroups.apis.group_configs import GROUP, is_group_resource, name_of
from proxy.sharegroups.apis.group_ids import any_entry
from proxy.sharegroups.services import ShareServices

GROUPS_MAX = 2_000
"""Groups in one request: each costs a question upstream."""


def names_group_resource(_: ShareServices) -> Picks:
    """`DeclaredApi.picks`: requests that name a resource which may have anything for us."""
    return any_entry(lambda request: request.resources or (), is_group_resource)


def by_group_resource(answers: str) -> Splits:
    """`DeclaredApi.splits` of requests about configurations; `answers`: the list in the response."""
    return Splits("resources", _group, answers, name_of, name_of)


def _group(entry: Any) -> str | None:
    return entry.resource_name if entry.resource_type == GROUP else None

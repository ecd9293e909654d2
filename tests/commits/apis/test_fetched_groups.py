"""Groups of OffsetFetch, in requests and responses of every version."""

from __future__ import annotations

import pytest
from kafka_share_proxy.commits.apis.fetched_groups import SPLITS, requested_groups, responded_groups
from kafka_share_proxy.wire.definitions import registry


def test_groups_are_listed_or_there_is_one() -> None:
    request = registry.message("OffsetFetchRequest")
    assert SPLITS.groups(request(group_id="g")) == ["g"]
    assert SPLITS.groups(request()) == []
    several = request(groups=[request.OffsetFetchRequestGroup(group_id=name) for name in ("a", "b")])
    assert SPLITS.groups(several) == ["a", "b"]


@pytest.mark.parametrize("version", [7, 8])
def test_response_contains_each_group(version: int) -> None:
    request, response = registry.message("OffsetFetchRequest"), registry.message("OffsetFetchResponse")
    if version < 8:
        requested, fetched = request(group_id="g"), response(error_code=16)
    else:
        requested = request(groups=[request.OffsetFetchRequestGroup(group_id="g")])
        fetched = response(groups=[response.OffsetFetchResponseGroup(group_id="g", error_code=16)])
    assert [group.group_id for group in requested_groups(requested, version)] == ["g"]
    assert [(name, group.error_code) for name, group in responded_groups(requested, fetched, version)] == [("g", 16)]

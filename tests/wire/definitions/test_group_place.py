"""Positions of the group id in requests."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.group_place import GroupPlace, group_place
from kafka_share_proxy.wire.errors import LocalProtocolError


@pytest.mark.parametrize(
    ("key", "version", "place"),
    [
        (ApiKey.OFFSET_COMMIT, 7, GroupPlace(is_flexible=False, is_listed=False, strings_before=0)),
        (ApiKey.OFFSET_COMMIT, 9, GroupPlace(is_flexible=True, is_listed=False, strings_before=0)),
        (ApiKey.OFFSET_FETCH, 7, GroupPlace(is_flexible=True, is_listed=False, strings_before=0)),
        (ApiKey.OFFSET_FETCH, 8, GroupPlace(is_flexible=True, is_listed=True, strings_before=0)),
        (ApiKey.TXN_OFFSET_COMMIT, 2, GroupPlace(is_flexible=False, is_listed=False, strings_before=1)),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, GroupPlace(is_flexible=True, is_listed=False, strings_before=0)),
    ],
)
def test_the_position_of_the_group_id_follows_from_the_definitions(key: int, version: int, place: GroupPlace) -> None:
    """OffsetFetch has a list of groups from v8 on; TxnOffsetCommit names a transactional id first."""
    assert group_place(key, version) == place


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.ADD_OFFSETS_TO_TXN])
def test_a_request_that_names_its_group_elsewhere_or_nowhere_is_refused(key: int) -> None:
    """The walk in C would read something else."""
    with pytest.raises(LocalProtocolError, match="no group id after strings alone"):
        group_place(key, 3)

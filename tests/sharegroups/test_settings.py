"""Settings of share groups."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.model.broker_limits import InvalidShareLimits
from kafka_share_proxy.sharegroups.settings import ShareGroups
from pydantic import ValidationError


@pytest.mark.parametrize("wrong", [{"serve": "never"}, {"state_wait_s": 1}, {"renewal_limits": [{"renewals": 0}]}])
def test_values_out_of_bounds_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ShareGroups.model_validate(wrong)


def test_each_wrong_broker_setting_is_a_mistake_at_its_own_path() -> None:
    wrong = ShareGroups(broker={"group.share.max.size": 0, "group.share.other": 1})
    paths = {path for path, _ in wrong.mistakes(is_fleet=False)}
    assert paths == {("broker", "group.share.max.size"), ("broker", "group.share.other")}


def test_state_in_memory_is_a_mistake_in_a_fleet() -> None:
    in_memory = ShareGroups(state="memory")
    assert [path for path, _ in in_memory.mistakes(is_fleet=True)] == [("state",)]
    assert list(in_memory.mistakes(is_fleet=False)) == list(ShareGroups().mistakes(is_fleet=True)) == []


def test_broker_settings_are_listed_with_their_defaults() -> None:
    listed = ShareGroups().named_values("broker")
    assert listed is not None
    assert listed["group.share.max.size"] == (200, "")
    assert listed.keys() == set(ShareGroups.dotted_names["broker"])
    assert ShareGroups().named_values("serve") is None


def test_broker_settings_have_kafkas_names_and_bounds() -> None:
    assert ShareGroups(broker={"group.share.max.size": 7}).limits.group_share_max_size == 7
    with pytest.raises(InvalidShareLimits):
        _ = ShareGroups(broker={"group.share.max.size": 0}).limits

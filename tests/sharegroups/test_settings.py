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


def test_broker_settings_have_kafkas_names_and_bounds() -> None:
    assert ShareGroups(broker={"group.share.max.size": 7}).limits.group_share_max_size == 7
    with pytest.raises(InvalidShareLimits):
        _ = ShareGroups(broker={"group.share.max.size": 0}).limits

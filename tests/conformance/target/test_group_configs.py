"""Settings of groups."""

from __future__ import annotations

from tests.support.target_caller import running_cluster


async def test_settings_of_both_kinds_are_kept_and_checked() -> None:
    async with running_cluster() as cluster:
        configs = cluster.group_configs
        stored = {"consumer.session.timeout.ms": "50000", "share.isolation.level": "read_committed"}
        assert configs.mistake(stored) is None
        configs.store("g", stored)
        assert (configs.stored("g"), configs.with_settings()) == (stored, ["g"])
        assert configs.value("g", "consumer.session.timeout.ms") == "50000"
        assert configs.value("g", "share.auto.offset.reset") == configs.default("share.auto.offset.reset") == "latest"
        assert "it must be 45000 to 60000" in (configs.mistake({"consumer.session.timeout.ms": "1"}) or "")
        assert configs.mistake({"none": "1"}) == "Unknown group config name: none"
        assert set(stored) < set(configs.keys())
        configs.store("g", {})
        assert configs.with_settings() == []

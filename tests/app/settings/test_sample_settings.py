"""deploy/settings.yaml shows every setting with its default, as the models declare it."""

from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from kafka_share_proxy.app.settings import config_loading, sample_settings
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits, broker_names

SAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "settings.yaml"


def leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value; an empty map counts as not set."""
    by_path: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            by_path |= leaves(value, f"{prefix}{key}.")
        else:
            by_path[f"{prefix}{key}"] = value or None if isinstance(value, dict | list | tuple) else value
    return by_path


def test_the_sample_has_every_setting_with_its_default() -> None:
    """Missing, additional or different settings are named."""
    defaults = Config().model_dump(mode="json")
    share = BrokerShareLimits()
    defaults["share_groups"]["broker"] = {name: share.value(name) for name in broker_names()}
    defaults["limits"] = asdict(Limits())
    assert leaves(yaml.safe_load(SAMPLE.read_text())) == leaves(defaults)


def test_the_sample_works_with_the_two_settings_that_are_needed() -> None:
    """The file has nothing else changed."""
    flags = {"upstream.bootstrap": "a:1", "listen": "h:1"}
    assert config_loading.load(flags, {}, str(SAMPLE)).named_limits == Limits()


def test_the_sample_is_what_the_models_declare() -> None:
    """After a change of a setting, write the file again with the command in its head."""
    assert SAMPLE.read_text() == sample_settings.render()


def test_every_setting_has_a_help_text() -> None:
    lines = sample_settings.render().splitlines()
    bare = [line for above, line in pairwise(lines) if ":" in line and "#" not in f"{line}{above}"]
    assert [line for line in bare if "group.share." not in line] == []


def test_values_of_a_choice_are_named() -> None:
    assert "debug, info, warning, error" in sample_settings.render()

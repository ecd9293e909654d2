"""Settings that a supervisor passes to its workers."""

from pathlib import Path

import pytest
from kafka_share_proxy.app.settings import config_loading, passed_settings
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.feature.errors import ConfigError

SAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "settings.yaml"


def test_a_worker_gets_the_same_settings() -> None:
    config = config_loading.load({"upstream.bootstrap": "a:9092,b:9092", "listen": "127.0.0.1:9092", "workers": 2}, {})
    assert passed_settings.decode(passed_settings.encode(config)) == config


def test_a_worker_gets_every_setting_of_the_sample_file() -> None:
    config = config_loading.load({"upstream.bootstrap": "a:1", "listen": "h:1"}, {}, str(SAMPLE))
    assert passed_settings.decode(passed_settings.encode(config)) == config


def test_a_worker_gets_secrets() -> None:
    sasl = {"mechanism": "PLAIN", "username": "proxy", "password": "a secret"}
    config = Config.model_validate({"upstream": {"sasl": sasl}})
    assert passed_settings.decode(passed_settings.encode(config)).upstream.sasl.secret() == "a secret"


def test_settings_of_another_version_are_refused_by_name_and_without_values() -> None:
    with pytest.raises(ConfigError, match=r"does not know: upstream\.nonsense") as refused:
        passed_settings.decode('{"upstream": {"nonsense": "a secret"}}')
    assert "a secret" not in str(refused.value)

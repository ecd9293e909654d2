"""Settings: sources, precedence, and a report of all mistakes together."""

from pathlib import Path

import pytest
from kafka_share_proxy.app.settings import config_loading
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.wire.values import Address

REQUIRED = {"upstream.bootstrap": "kafka-1:9092,kafka-2:9093", "listen": "127.0.0.1:19092"}


def load(tmp_path: Path, yaml: str = "", flags: dict[str, object] | None = None, **environment: str) -> Config:
    path = tmp_path / "settings.yaml"
    path.write_text(yaml)
    return config_loading.load(REQUIRED if flags is None else flags, environment, str(path))


def mistakes(tmp_path: Path, yaml: str = "", flags: dict[str, object] | None = None, **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, yaml, flags, **environment)
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def test_two_flags_are_enough() -> None:
    """Upstream and listen given, everything else has a default."""
    settings = config_loading.load(REQUIRED, {})
    assert settings.upstream.bootstrap == (Address("kafka-1", 9092), Address("kafka-2", 9093))
    assert (settings.broker_addresses.of(0), settings.advertised_host) == (Address("127.0.0.1", 19093), "127.0.0.1")
    assert settings.named_limits == Limits()
    assert settings.share_groups.limits.group_share_max_size == 200
    assert not settings.upstream.tls.on
    assert not settings.upstream.sasl.on


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    """The strongest source that names a key decides about that key alone."""
    yaml = (
        "listen: 127.0.0.1:1\nlog_level: error\nlog_format: json\nupstream: {bootstrap: [a:1], metadata_interval_s: 7}"
    )
    settings = load(tmp_path, yaml, {"listen": "127.0.0.1:3"}, KSP_LISTEN="127.0.0.1:2", KSP_LOG_LEVEL="debug")
    assert (settings.bound.port, settings.log_level, settings.log_format) == (3, "debug", "json")
    assert settings.upstream.bootstrap == (Address("a", 1),)
    assert settings.upstream.metadata_interval_s == 7


def test_environment_names_nested_keys_lists_and_kafka_names() -> None:
    """Double underscores nest; dots of Kafka's names are single underscores."""
    environment = {
        "KSP_UPSTREAM__BOOTSTRAP": "a:1, [::1]:2",
        "KSP_LISTEN": "localhost:5",
        "KSP_UPSTREAM__NODES": "1=a:1,2=b:2",
        "KSP_LIMITS__CONNECTIONS": "12",
        "KSP_SHARE_GROUPS__BROKER__GROUP_SHARE_MAX_SIZE": "17",
        "PATH": "/bin",
    }
    settings = config_loading.load({}, environment)
    assert settings.upstream.bootstrap == (Address("a", 1), Address("::1", 2))
    assert settings.upstream.nodes == {1: Address("a", 1), 2: Address("b", 2)}
    assert settings.named_limits.connections == 12
    assert settings.share_groups.limits.group_share_max_size == 17


def test_dotted_flags_reach_kafka_names() -> None:
    """Below share_groups.broker the rest of a flag is one name."""
    settings = config_loading.load({**REQUIRED, "share_groups.broker.group.share.max.size": "9"}, {})
    assert settings.share_groups.limits.group_share_max_size == 9


def test_all_mistakes_are_reported_together(tmp_path: Path) -> None:
    """Wrong types, unknown keys, impossible pairs and missing settings, each with its path and origin."""
    yaml = """
upstream: {bootstrap: [kafka], metadata_interval_s: 0, sasl: {mechanism: PLAIN}}
log_fromat: json
limits: {conections: 5, connections: 0, frame_bytes: 1.5}
share_groups: {serve: sometimes, broker: {group.share.max.size: 0, group.share.nonsense: 1}}
client_tls: {cert_file: /nowhere/cert.pem}
cluster: {mode: many}
"""
    reported = mistakes(tmp_path, yaml, {}, KSP_DRAIN_S="soon")
    paths = [line.split(" ")[0].rstrip(":") for line in reported]
    assert paths == sorted(paths)
    assert set(paths) == {
        "client_tls.cert_file",
        "client_tls.key_file",
        "cluster.mode",
        "drain_s",
        "limits.conections",
        "limits.connections",
        "limits.frame_bytes",
        "listen",
        "log_fromat",
        "share_groups.broker.group.share.max.size",
        "share_groups.broker.group.share.nonsense",
        "share_groups.serve",
        "upstream.bootstrap",
        "upstream.metadata_interval_s",
        "upstream.sasl.password",
        "upstream.sasl.username",
    }
    text = "\n".join(reported)
    assert "did you mean log_format?" in text
    assert "did you mean limits.connections?" in text
    assert "environment variable KSP_DRAIN_S" in text
    assert str(tmp_path / "settings.yaml") in text


@pytest.mark.parametrize(
    ("setting", "advice"),
    [
        (
            "client_tls.enabled",
            "client_tls (TLS towards the clients: on when cert_file and key_file are set) has cert_file,",
        ),
        ("client_tls.cert_fil", "did you mean client_tls.cert_file?"),
        ("kubernetes", "settings are upstream, listen,"),
    ],
)
def test_an_unknown_setting_is_refused_with_what_there_is(setting: str, advice: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config_loading.load({**REQUIRED, setting: "true"}, {})
    assert f"there is no such setting; {advice}" in str(refused.value)


def test_an_unknown_setting_in_a_list_is_refused_by_its_path(tmp_path: Path) -> None:
    yaml = "share_groups: {serve_by_group: [{group: a, serve: local}]}"
    assert any(
        "share_groups.serve_by_group.0.group" in line and "did you mean share_groups.serve_by_group.0.groups?" in line
        for line in mistakes(tmp_path, yaml, REQUIRED)
    )


def test_missing_settings_name_the_flags() -> None:
    """Without anything the message says what to give."""
    with pytest.raises(ConfigError, match=r"--bootstrap HOST:PORT(?s:.)*|--listen"):
        config_loading.load({}, {})


def test_a_wildcard_needs_an_advertised_host() -> None:
    """No client can dial 0.0.0.0."""
    with pytest.raises(ConfigError, match="advertise"):
        config_loading.load({**REQUIRED, "listen": "0.0.0.0:9092"}, {})
    settings = config_loading.load({**REQUIRED, "listen": "0.0.0.0:9092", "advertise": "proxy.example"}, {})
    assert settings.advertised_host == "proxy.example"


@pytest.mark.parametrize(
    "text", ["", "9092", "kafka:", ":9092", "kafka:0", "kafka:65536", "kafka:９", "::1:9092", "a:-1"]
)
def test_invalid_address_is_refused(text: str) -> None:
    """HOST:PORT with a port from 1 to 65535, and nothing else."""
    with pytest.raises(ConfigError, match="listen"):
        config_loading.load({**REQUIRED, "listen": text}, {})


def test_no_port_left_for_brokers_is_a_mistake() -> None:
    """The first broker port may not be above 65535, nor that of a node that is listed."""
    with pytest.raises(ConfigError, match="no port is left"):
        config_loading.load({**REQUIRED, "listen": "127.0.0.1:65535"}, {})
    with pytest.raises(ConfigError, match=r"upstream\.nodes\.50000"):
        config_loading.load({**REQUIRED, "upstream.nodes": "50000=a:1"}, {})


def test_secrets_never_show(tmp_path: Path) -> None:
    """Neither a message, nor repr, nor a dump holds a password."""
    secret = "hunter2"
    yaml = f"upstream: {{sasl: {{mechanism: PLAIN, username: u, password: {secret}}}}}"
    settings = load(tmp_path, yaml)
    assert settings.upstream.sasl.secret() == secret
    assert secret not in repr(settings)
    assert secret not in settings.model_dump_json()
    wrong = f"upstream: {{sasl: {{mechanism: {secret}, username: u, password: [{secret}], passwrd: {secret}}}}}"
    assert secret not in "\n".join(mistakes(tmp_path, wrong))


def test_upstream_tls_is_on_when_any_of_its_keys_is_set(tmp_path: Path) -> None:
    """`enabled` needs to be said only where the system's list of authorities is enough."""
    assert config_loading.load({**REQUIRED, "upstream.tls.enabled": "true"}, {}).upstream.tls.on
    assert config_loading.load({**REQUIRED, "upstream.tls.verify": False}, {}).upstream.tls.on
    reported = mistakes(tmp_path, "upstream: {tls: {enabled: false, verify: false}}")
    assert [line.split(" ")[0].rstrip(":") for line in reported] == ["upstream.tls.enabled"]


@pytest.mark.parametrize(
    ("yaml", "words"),
    [
        ("listen: a:1\nlisten: b:2", "written twice"),
        ("upstream: [", "settings.yaml"),
        ("- a", "must hold a map"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, yaml: str, words: str) -> None:
    """Broken YAML, a key written twice, and a list where a map belongs; what else it may say is not called missing."""
    reported = "\n".join(mistakes(tmp_path, yaml))
    assert words in reported
    assert "missing" not in reported
    assert reported.count("config") == 1


def test_a_missing_file_is_a_mistake() -> None:
    """A file that was named must exist."""
    with pytest.raises(ConfigError, match="cannot read /nowhere"):
        config_loading.load(REQUIRED, {}, "/nowhere/settings.yaml")


def test_a_scalar_where_a_section_belongs_is_a_mistake(tmp_path: Path) -> None:
    """`upstream: kafka:9092` is not silently dropped."""
    reported = mistakes(tmp_path, "upstream: kafka:9092", {"listen": "127.0.0.1:1"})
    assert any(line.startswith("upstream (") for line in reported)


@pytest.mark.parametrize(
    "value", ["5", "a", "[5]", "[[]]", "{groups: a}", "[{groups: {a: 1}}]", "[{serve: [x]}, {group: y}]"]
)
def test_a_list_of_the_wrong_shape_is_a_mistake_with_its_path(tmp_path: Path, value: str) -> None:
    """Any mistake inside a list: the settings are refused, with its path."""
    reported = mistakes(tmp_path, f"share_groups: {{serve_by_group: {value}}}", REQUIRED)
    assert reported
    assert all(line.startswith("share_groups.serve_by_group") for line in reported)


@pytest.mark.parametrize("value", ["many", "0", "1000000", "2.5"])
def test_a_wrong_number_of_workers_is_one_mistake_under_its_own_name(tmp_path: Path, value: str) -> None:
    """It may be a number or a word, but there are no settings for either."""
    (mistake,) = mistakes(tmp_path, flags={**REQUIRED, "workers": value})
    assert mistake.startswith("workers (command line): write auto, or a whole number from 1 to ")
    assert mistake.endswith(f"(it is {value!r})")

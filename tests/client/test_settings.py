"""Arguments of a consumer: every mistake is named, with the correct form."""

from __future__ import annotations

import math
import ssl
from typing import Any

import pytest
import trio
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.client.settings import CLIENT_ID, addresses, checked_options, connection_settings
from kafka_share_proxy.consumer.options import ConfigurationError, ConsumerOptions
from kafka_share_proxy.wire.values import Address


def test_servers_are_listed_once_in_their_order() -> None:
    assert addresses("a:1, b:2,a:1") == (Address("a", 1), Address("b", 2))
    assert addresses(["a:1", "c,d:3"]) == (Address("a", 1), Address("c", 9092), Address("d", 3))
    assert addresses("[::1]:9094,10.0.0.1") == (Address("::1", 9094), Address("10.0.0.1", 9092))


@pytest.mark.parametrize("text", ["a:0", "a:65536", "a:x", ":9092", "http://a:1", "[]:1"])
def test_a_text_that_is_no_server_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write host:port"):
        addresses(text)


def test_a_bootstrap_without_servers_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="bootstrap names no server"):
        addresses(" , ")


def connections(**arguments: Any) -> ClusterClientSettings:
    usual: dict[str, Any] = {"client_id": CLIENT_ID, "tls": None, "sasl": None, "connect": trio.open_tcp_stream}
    return connection_settings("a:1", **(usual | arguments)).connections


def test_options_have_the_names_of_the_settings() -> None:
    options = checked_options(ConsumerOptions, "g", {"session_timeout_s": 10.0, "read_committed": True})
    assert (options.group_id, options.session_timeout_s, options.read_committed) == ("g", 10.0, True)
    assert connections().tls is None
    assert connections().client_id == "kafka-share-proxy-client"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"auto_offset_rest": "x"}, "no option is called 'auto_offset_rest': did you mean 'auto_offset_reset'"),
        ({"zzz": 1}, "no option is called 'zzz': there are group_instance_id|no option is called 'zzz': there are"),
        ({"group_id": "g"}, "'group_id': say group="),
        ({"auto_offset_reset": "newest"}, "auto.offset.reset 'newest': one of earliest, latest, none"),
        ({"session_timeout_s": "45"}, "session_timeout_s='45': a number is needed, this is a str"),
        ({"session_timeout_s": True}, "session_timeout_s=True: a number is needed, this is a bool"),
        ({"read_committed": "yes"}, "read_committed='yes': True or False is needed, this is a str"),
        ({"fetch_min_bytes": 1.5}, "fetch_min_bytes=1.5: a whole number is needed, this is a float"),
        ({"assignors": "range"}, "assignors='range': a list of names is needed, this is a str"),
        ({"key_filter": 3}, "key_filter=3: a KeyFilter or None is needed, this is an int"),
        ({"rack": b"a"}, "rack=b'a': a str or None is needed, this is a bytes"),
        ({"fetch_max_wait_s": -0.5}, "fetch_max_wait_s=-0.5: fetch.max.wait.ms must be 0 or more"),
        ({"request_timeout_s": math.nan}, "request_timeout_s=nan: a number is needed"),
        ({"max_poll_interval_s": math.inf}, "max_poll_interval_s=inf: max.poll.interval.ms must be at most 2147484"),
        ({"buffer_bytes_max": 0, "api_timeout_s": 0}, "api_timeout_s=0: .*; buffer_bytes_max=0: must be above 0"),
        ({"auto_offset_reset": None}, "auto_offset_reset=None: a str is needed"),
        ({"enable_auto_commit": True}, "'enable_auto_commit': say auto_commit_interval_s=5.0"),
        ({"auto.offset.reset": "earliest"}, "'auto.offset.reset': write auto_offset_reset="),
        ({"session_timeout_ms": 1}, "'session_timeout_ms': say session_timeout_s=, in seconds"),
        ({"isolation_level": 1}, "say read_committed=True"),
        ({"ssl_cafile": "a"}, "say tls=True"),
        ({"sasl_mechanism": "PLAIN"}, "say sasl="),
        ({"acquire_mode": "record_limit"}, "only share consumers have it"),
        ({"zzz": 1, "yyy": 2}, "'zzz': .*; no option is called 'yyy'"),
        ({"session_timeout_s": -1.0, "heartbeat_interval_s": -2.0}, "session.timeout.ms must be above 0"),
    ],
)
def test_a_mistake_in_an_option_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        checked_options(ConsumerOptions, None, options)


@pytest.mark.parametrize("interval_s", [-3, -0.001, math.inf, "5"])
def test_an_interval_of_automatic_commits_is_0_or_more_seconds(interval_s: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"auto_commit_interval_s={interval_s!r}"):
        open_consumer("a:1", group="g", auto_commit_interval_s=interval_s)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"group": 7}, "group=7: a str or None is needed"),
        ({"tls": "yes"}, "tls='yes': a SSLContext or True or False or None is needed|tls='yes': an SSLContext"),
        ({"client_id": None}, "client_id=None: a str is needed"),
        ({"client_id": ""}, "client_id is empty"),
        ({"connect": 1}, "connect=1: a function is needed"),
        ({"observe": 1}, "observe=1: a function is needed"),
        ({"check_crcs": 1}, "check_crcs=1: True or False is needed"),
        ({"max_poll_records": "9"}, "max_poll_records='9': a whole number is needed"),
        ({"listener": object()}, "listener=.*: a RebalanceListener or None is needed"),
        ({"topics": 1, "group": "g"}, "topics=1: a str or an Iterable is needed"),
        ({"sasl": "alice"}, "sasl: write"),
        ({"sasl": ("PLAIN", "alice", 7)}, "sasl: the user name is a str, and the password"),
    ],
)
def test_an_argument_of_another_type_is_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        open_consumer("a:1", **arguments)


def test_a_bootstrap_of_another_type_is_named() -> None:
    wrong: Any = 9092
    with pytest.raises(ConfigurationError, match="bootstrap=9092: a str or an Iterable is needed"):
        open_consumer(wrong)
    with pytest.raises(ConfigurationError, match="bootstrap="):
        open_consumer([wrong])


def test_tls_and_sasl_options_become_context_and_identity() -> None:
    context = ssl.create_default_context()
    custom_tls, default = connections(tls=context).tls, connections(tls=True).tls
    assert custom_tls is not None
    assert default is not None
    assert custom_tls.current is context
    assert isinstance(default.current, ssl.SSLContext)
    assert connections(tls=False).tls is None
    identity = connections(sasl=("SCRAM-SHA-256", "u", "p")).identity
    assert identity is not None
    assert (identity.mechanism, identity.username, identity.password()) == ("SCRAM-SHA-256", "u", "p")
    assert "p" not in repr(identity).replace("password", "").replace("SCRAM", "").split("username")[1]


@pytest.mark.parametrize(
    ("sasl", "words"),
    [(("GSSAPI", "u", "p"), "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"), (("PLAIN", "", "p"), "user name is empty")],
)
def test_a_mistake_in_sasl_is_named(sasl: tuple[str, str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        connections(sasl=sasl)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"topics": ["a"]}, ConfigurationError, "need a group"),
        ({"group": "g", "topics": ["a"], "partitions": [("a", 0)]}, ConfigurationError, "exclude each other"),
        ({"group": "g", "topics": ["a"], "pattern": "a"}, ConfigurationError, "exclude each other"),
        ({"group": ""}, ConfigurationError, "group is empty"),
        (
            {"group": "g", "individual_commits": True, "auto_commit_interval_s": 5.0},
            ConfigurationError,
            "polled is not",
        ),
        ({"max_poll_records": 0}, ConfigurationError, "max_poll_records 0"),
        ({"revoke_in_same_poll": True}, ConfigurationError, "no listener would be called"),
    ],
)
def test_arguments_that_cannot_work_together_are_named(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        open_consumer("a:1", **arguments)

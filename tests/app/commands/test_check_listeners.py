"""Trial binding by `check` of the addresses that `serve` would listen on."""

from __future__ import annotations

import errno
import os
import socket

from kafka_share_proxy.app.commands import check_listeners
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.wire.values import Address

TAKEN = os.strerror(errno.EADDRINUSE)
BROKERS = {0: Address("kafka", 9092), 1: Address("kafka", 9093)}


def config(first: int, **settings: object) -> Config:
    return Config.model_validate({"listen": f"{HOST}:{first}", "upstream": {"bootstrap": ["kafka:9092"]}} | settings)


def tried(settings: Config) -> dict[str, str]:
    return {each.purpose: each.trouble for each in check_listeners.try_all(settings, BROKERS)}


def test_check_tries_every_listener_and_lets_go_of_it() -> None:
    """Bootstrap, one for each broker, admin and, in a fleet, the one for other proxies; twice, for nothing is kept."""
    first, *_, admin, peer = free_ports(5)
    fleet = {"mode": "fleet", "peer": {"listen": f"{HOST}:{peer}", "secret": "s" * 16}}
    settings = config(first, admin=f"{HOST}:{admin}", cluster=fleet)
    for _ in range(2):
        assert tried(settings) == dict.fromkeys(("bootstrap", "broker 0", "broker 1", "admin", "other proxies"), "")


def test_check_finds_every_port_of_its_range_in_use() -> None:
    """Each port is reported separately."""
    first = free_ports(4)[0]
    listeners = [socket.create_server((HOST, first + index)) for index in range(4)]
    try:
        settings = config(first, admin=f"{HOST}:{first + 3}")
        assert tried(settings) == dict.fromkeys(("bootstrap", "broker 0", "broker 1", "admin"), TAKEN)
        assert len(list(check_listeners.mistakes(settings, check_listeners.try_all(settings, BROKERS), BROKERS))) == 4
    finally:
        for sock in listeners:
            sock.close()


def test_check_finds_listeners_that_take_each_other_s_port() -> None:
    """The admin listener on the port of a broker."""
    first = free_ports(4)[0]
    assert tried(config(first, admin=f"{HOST}:{first + 2}"))["admin"] == TAKEN


def test_check_finds_an_address_that_is_not_of_this_machine() -> None:
    """A broker's host as `listen`, or an unknown name."""
    elsewhere = config(9092, listen="192.0.2.1:9092")
    assert tried(elsewhere)["bootstrap"] == os.strerror(errno.EADDRNOTAVAIL)
    assert tried(config(9092, listen="no-such-host.invalid:9092"))["bootstrap"]


def test_with_one_port_there_is_no_listener_for_a_broker() -> None:
    """An advertised name that is a broker's own address is a mistake all the same."""
    names = {"exposure": "sni", "advertise": "kafka.example", "broker_names": "kafka-{id}.example"}
    settings = config(free_ports(1)[0], advertise_port=9092, **names)
    assert tried(settings) == {"bootstrap": ""}
    brokers = {1: Address("kafka-1.example", 9092), 2: Address("elsewhere", 9092)}
    assert list(check_listeners.mistakes(settings, (), brokers)) == [
        "broker 1 becomes kafka-1.example:9092, which is a broker's own address: clients would bypass the proxy; "
        "choose another"
    ]

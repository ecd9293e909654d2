"""Names, sockets and addresses that a supervisor assigns to its workers."""

import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.workers.places import NUMBERS, Places
from kafka_share_proxy.feature.errors import ConfigError

SINGLE = Config.model_validate({"listen": "127.0.0.1:9092", "workers": 2})
PEER = {"listen": "0.0.0.0:9200", "advertise": "proxy-a:9300", "secret": "of the fleet alone"}
FLEET = Config.model_validate({"listen": "127.0.0.1:9092", "workers": 2, "cluster": {"mode": "fleet", "peer": PEER}})


@pytest.fixture
def places() -> Iterator[Places]:
    worker_places = Places()
    yield worker_places
    worker_places.remove()


def test_workers_of_a_single_proxy_have_names_and_a_secret_of_their_own(places: Places) -> None:
    first, second = places.seat(SINGLE, 0), places.seat(SINGLE, 1)
    assert (first["name"], second["name"]) == ("127.0.0.1:9092/0", "127.0.0.1:9092/1")
    assert first["secret"] == second["secret"]
    assert len(bytes.fromhex(first["secret"])) == 32
    assert first["peer_listen"] is None


def test_another_proxy_is_not_taken_for_a_worker(places: Places) -> None:
    """Its workers have another protocol name, which the group of proxies refuses (23)."""
    other = Config.model_validate({"listen": "127.0.0.1:9999", "workers": 2})
    assert places.seat(SINGLE, 0)["protocol"] == places.seat(SINGLE, 1)["protocol"]
    assert places.seat(SINGLE, 0)["protocol"] != places.seat(other, 0)["protocol"]


def test_workers_of_a_fleet_have_addresses_for_other_machines_and_the_secret_of_the_fleet(places: Places) -> None:
    seat = places.seat(FLEET, 3)
    assert (seat["name"], seat["peer_listen"]) == ("proxy-a:9303", "0.0.0.0:9203")
    assert (seat["secret"], seat["protocol"]) == (None, "")


@pytest.mark.parametrize("config", [SINGLE, FLEET])
def test_each_worker_knows_the_sockets_of_all_possible_siblings(places: Places, config: Config) -> None:
    seats = [places.seat(config, number) for number in NUMBERS]
    assert seats[0]["paths"] == {seat["name"]: seat["links"] for seat in seats}


def test_the_folder_is_for_this_user_only_and_removed(places: Places) -> None:
    folder = Path(places.admin(0)).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    places.remove()
    assert not folder.exists()


def test_the_folder_of_the_service_manager_is_used_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    assert Path(Places().admin(0)).is_relative_to(tmp_path)


def test_without_a_writable_folder_the_setting_to_change_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> str:
        raise PermissionError

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(ConfigError, match="set TMPDIR"):
        Places()

"""Places without a worker, and the workers that accept their clients."""

import signal
from http import HTTPStatus

import pytest
from kafka_share_proxy.app.observing.admin_listener import Response
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.workers import worker_client
from kafka_share_proxy.app.workers.covered_places import CoveredPlaces
from kafka_share_proxy.app.workers.generation import Generation
from kafka_share_proxy.app.workers.worker_process import WorkerProcess, start_process

Requested = list[tuple[str, str]]


def worker_at(place: int) -> WorkerProcess:
    return WorkerProcess(place, place, f"admin-{place}", start_process)


class ThreeWorkers(Generation):
    """A generation whose workers a test makes."""

    def __init__(self) -> None:
        super().__init__(
            Config(workers=3), range(3), lambda _generation, place: worker_at(place), lambda *_, **__: None
        )
        self.was_ready = True
        for place in self.places:
            self.put(place)

    def put(self, place: int) -> None:
        worker = self._workers[place] = worker_at(place)
        worker.ready.set()

    def end(self, place: int) -> None:  # type: ignore[override]  # of one worker, in this test
        self._workers[place].status = -signal.SIGKILL
        self._workers[place].ended.set()


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> Requested:
    requests: Requested = []

    async def request(path: str, method: str, target: str) -> Response:
        requests.append((path, target))
        return Response(HTTPStatus.OK, b"{}")

    monkeypatch.setattr(worker_client, "request", request)
    return requests


async def test_while_all_workers_serve_nothing_is_covered(requested: Requested) -> None:
    await CoveredPlaces().follow(ThreeWorkers())
    assert requested == []


async def test_a_worker_accepts_the_clients_of_one_that_ended_until_it_is_replaced(requested: Requested) -> None:
    covers, workers = CoveredPlaces(), ThreeWorkers()
    workers.end(1)
    await covers.follow(workers)
    await covers.follow(workers)
    assert requested == [("admin-0", "/covers/1/begin")]
    workers.put(1)
    await covers.follow(workers)
    assert requested[1:2] == [("admin-0", "/covers/1/end")]


async def test_the_others_give_connections_to_a_worker_that_has_replaced_one(requested: Requested) -> None:
    covers, workers = CoveredPlaces(), ThreeWorkers()
    workers.end(1)
    await covers.follow(workers)
    workers.put(1)
    workers.numbers = [0, 7, 2]
    requested.clear()
    await covers.follow(workers)
    await covers.follow(workers)
    assert requested[1:] == [("admin-0", "/gives/0,7,2/1"), ("admin-2", "/gives/0,7,2/1")]


async def test_two_workers_that_were_replaced_get_connections_once_both_serve(requested: Requested) -> None:
    covers, workers = CoveredPlaces(), ThreeWorkers()
    for place in (1, 2):
        workers.end(place)
        await covers.follow(workers)
    for place in (1, 2):
        workers.put(place)
        requested.clear()
        await covers.follow(workers)
        assert sorted(target for _, target in requested if "gives" in target) == (
            [] if place == 1 else ["/gives/0,1,2/1"] * 2 + ["/gives/0,1,2/2"] * 2
        )


async def test_nothing_is_given_while_a_place_has_no_worker(requested: Requested) -> None:
    covers, workers = CoveredPlaces(), ThreeWorkers()
    for place in (1, 0):
        workers.end(place)
        await covers.follow(workers)
    assert not any("gives" in target for _, target in requested)


async def test_if_the_covering_worker_ends_another_covers_both(requested: Requested) -> None:
    covers, workers = CoveredPlaces(), ThreeWorkers()
    workers.end(1)
    await covers.follow(workers)
    workers.end(0)
    requested.clear()
    await covers.follow(workers)
    assert ("admin-2", "/covers/0/begin") in requested
    assert ("admin-2", "/covers/1/begin") in requested


async def test_before_all_have_served_no_place_is_covered(requested: Requested) -> None:
    workers = ThreeWorkers()
    workers.was_ready = False
    workers.end(1)
    await CoveredPlaces().follow(workers)
    assert requested == []


async def test_without_any_worker_nothing_is_covered(requested: Requested) -> None:
    workers = ThreeWorkers()
    for place in workers.places:
        workers.end(place)
    await CoveredPlaces().follow(workers)
    assert requested == []

"""Places whose workers have ended, and the workers that accept their clients until they are replaced."""

from __future__ import annotations

from http import HTTPStatus

import trio

from kafka_share_proxy.app.workers import giving_page, worker_client
from kafka_share_proxy.app.workers.covering_page import BEGIN, END, PATH
from kafka_share_proxy.app.workers.generation import Generation
from kafka_share_proxy.app.workers.worker_process import WorkerProcess


class CoveredPlaces:
    """Places without a worker, and the workers that accept their clients meanwhile (app/README.md rule 12)."""

    def __init__(self) -> None:
        self._covering: dict[int, WorkerProcess] = {}
        """Place -> the worker that accepts its clients."""
        self._replaced: set[int] = set()
        """Places with a new worker that has got no connections of the others yet."""
        self._one_at_a_time = trio.Lock()

    async def follow(self, generation: Generation) -> None:
        """Begin and end what the current workers of this generation require."""
        async with self._one_at_a_time:
            for place, worker in list(self._covering.items()):
                if place in generation.serving() or worker.ended.is_set():
                    del self._covering[place]
                    await _request(worker, place, END)
                    self._replaced.add(place)
            if generation.is_ready:
                while self._replaced:
                    await spread(generation, self._replaced.pop())
            if not generation.was_ready:
                return  # a place without a worker has had none, and gets no clients yet
            for place in generation.places:
                serving = generation.serving()
                if place not in serving and place not in self._covering and serving:
                    worker = next(iter(serving.values()))
                    if await _request(worker, place, BEGIN):
                        self._covering[place] = worker


async def spread(generation: Generation, new: int | None = None) -> None:
    """Let all workers give connections to those that should serve them, and to the one at the place `new` its share."""
    target = giving_page.target(generation.numbers, new)
    for place, worker in generation.serving().items():
        if place != new:
            await worker_client.request(worker.admin, "POST", target)


async def _request(worker: WorkerProcess, place: int, action: str) -> bool:
    """Return True if the worker has done it."""
    response = await worker_client.request(worker.admin, "POST", f"/{PATH}/{place}/{action}")
    return response is not None and response.status == HTTPStatus.OK

"""Which base a view belongs to, and which plans there are: kept in `__proxy_views`, followed by every proxy.

Theory of operation. One task follows the topic from its start and puts what it reads into the catalog. Another does
what handlers ask for: append a fact, or say when everything stored up to now has been read (a view that is new here may
be known to another proxy). The topic is made with the first fact. Where the proxy's own identity does not suffice, the
store is off: views are served, nothing outlives this process, plans are unknown; it is tried again now and then.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from proxy.brokers.internal_topics import TopicRefused
from proxy.brokers.own_client import AuthenticationNeeded, OwnClient
from proxy.brokers.own_connection import AuthenticationFailed
from proxy.loop.interfaces import Notes
from proxy.loop.lasting_trouble import LastingTrouble
from proxy.loop.promise import Promise, settled
from proxy.views import state_records
from proxy.views.model.catalog import ViewCatalog
from proxy.views.state_topic import Fact, ViewTopic
from proxy.wire.errors import ProxyError, RemoteProtocolError, UpstreamLost

FOLLOW_MS = 5_000
"""How long a read waits for something new."""
PAUSE_MIN_S, PAUSE_S = 0.05, 0.5
"""After something that failed; an append begins with the shorter one, for its topic may just have been made."""
TRIES = 20
"""A fact is given up after so many attempts."""
FACTS_MAX = 10_000
"""Facts that wait to be written; one more is refused."""

_OFF = (AuthenticationNeeded, AuthenticationFailed, TopicRefused)


class ViewState:
    """See store.ViewStore."""

    def __init__(self, catalog: ViewCatalog, client: Callable[[], OwnClient], look_s: float, notes: Notes) -> None:
        """`look_s`: how often a topic that is missing, or may not be read, is looked for."""
        self.off = ""
        """See ViewStore."""
        self._catalog = catalog
        self._client = client
        self._look_s = look_s
        self._notes = notes
        self._off_since = -look_s
        self._unread = LastingTrouble(notes, "view-state-not-read", "view-state-read")
        self._failing: set[str] = set()
        """Tasks that could not read at their last attempt."""
        self._syncs: list[Promise[None]] = []
        self._facts: list[tuple[bytes, bytes | None, Promise[None]]] = []
        self._wanted = trio.Event()
        self._there = trio.Event()
        """The topic exists, as far as is known."""
        self._position = 0
        self._moved = trio.Event()

    # The port

    def synced(self) -> Promise[None]:
        """See ViewStore."""
        if self.off and trio.current_time() - self._off_since < self._look_s:
            return settled(None)
        promise: Promise[None] = Promise()
        self._syncs.append(promise)
        self._wanted.set()
        return promise

    def store(self, key: bytes, value: bytes | None) -> Promise[None]:
        """See ViewStore."""
        state_records.take_in(self._catalog, key, value)
        promise: Promise[None] = Promise()
        if len(self._facts) >= FACTS_MAX:
            promise.fail(UpstreamLost(f"{FACTS_MAX} facts about views wait to be written"))
            return promise
        self._facts.append((key, value, promise))
        self._wanted.set()
        return promise

    # The tasks

    async def run(self) -> None:
        """Follow and write until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow)
            nursery.start_soon(self._serve)

    async def _follow(self) -> None:
        topic = ViewTopic(self._client())
        try:
            while True:
                try:
                    leader = await topic.leader()
                    if leader is not None:
                        self._there.set()
                        async with topic.reading(leader, self._position or None) as reading:
                            while True:
                                self._take_in(await reading.next(FOLLOW_MS), reading.position)
                                self._worked("follow")
                    self._worked("follow")  # there is no topic, and that is known
                except _OFF as error:
                    self._turn_off(error)
                except ProxyError as error:
                    self._failed("follow", error)
                    await trio.sleep(PAUSE_S)
                    continue
                self._there = trio.Event()
                with trio.move_on_after(self._look_s):
                    await self._there.wait()
                await trio.sleep(PAUSE_MIN_S)
        finally:
            with trio.CancelScope(shield=True):
                await topic.aclose()

    def _take_in(self, facts: list[Fact], position: int) -> None:
        for key, value in facts:
            try:
                state_records.take_in(self._catalog, key, value)
            except RemoteProtocolError as error:
                self._notes("view-state-ignored", reason=str(error))
        self._position = position
        self._moved.set()
        self._moved = trio.Event()

    async def _serve(self) -> None:
        topic = ViewTopic(self._client())
        try:
            while True:
                await self._wanted.wait()
                self._wanted = trio.Event()
                await self._write(topic)
                await self._sync(topic)
        finally:
            with trio.CancelScope(shield=True):
                await topic.aclose()

    async def _sync(self, topic: ViewTopic) -> None:
        """Settle whoever waits; where nothing answers, again until it does (they wait for a bounded time)."""
        waiting, self._syncs = self._syncs, []
        if not waiting:
            return
        try:
            leader = await topic.leader()
            if leader is not None:
                self._there.set()
                end = await topic.end(leader)
                with trio.move_on_after(FOLLOW_MS / 1000) as scope:
                    while self._position < end and not self.off:
                        await self._moved.wait()
                if scope.cancelled_caught:
                    raise UpstreamLost(f"{state_records.TOPIC} is not read as fast as it should be")
                if self._position >= end:
                    self._turn_on()
        except _OFF as error:
            self._turn_off(error)
        except ProxyError as error:
            self._failed("sync", error)
            self._syncs = waiting + self._syncs
            await trio.sleep(PAUSE_S)
            self._wanted.set()
            return
        self._worked("sync")
        for promise in waiting:
            promise.set(None)

    async def _write(self, topic: ViewTopic) -> None:
        facts, self._facts = self._facts, []
        if not facts:
            return
        error: ProxyError = UpstreamLost("nothing was tried")
        for tried in range(TRIES):
            try:
                await self._append(topic, [(key, value) for key, value, _ in facts])
            except _OFF as refusal:
                self._turn_off(refusal)
                error = refusal
                break
            except ProxyError as trouble:
                error = trouble
                await trio.sleep(min(PAUSE_MIN_S * 2**tried, PAUSE_S))
            else:
                self._turn_on()
                for _, _, promise in facts:
                    promise.set(None)
                return
        for _, _, promise in facts:
            promise.fail(error)

    async def _append(self, topic: ViewTopic, facts: list[tuple[bytes, bytes | None]]) -> None:
        leader = await topic.leader()
        if leader is None:
            await topic.create()
            self._notes("view-topic-created", topic=state_records.TOPIC)
            raise UpstreamLost(f"{state_records.TOPIC} was just made")
        self._there.set()
        await topic.append(leader, facts)

    def _failed(self, task: str, error: ProxyError) -> None:
        self._failing.add(task)
        self._unread.happened(str(error))

    def _worked(self, task: str) -> None:
        """The trouble of both tasks is one, and over when neither has any."""
        self._failing.discard(task)
        if not self._failing:
            self._unread.ended()

    def _turn_off(self, error: ProxyError) -> None:
        text = f"what views belong to is not stored, and there are no plans: {error}"
        if text != self.off:
            self._notes("view-state-off", reason=text)
        self.off, self._off_since = text, trio.current_time()
        self._moved.set()
        self._moved = trio.Event()

    def _turn_on(self) -> None:
        if self.off:
            self._notes("view-state-on", topic=state_records.TOPIC)
        self.off = ""

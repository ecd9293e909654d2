"""Bindings of views to bases, and plans, as stored in `__proxy_views` and followed by every proxy.

One task reads the topic. Another task serves the handlers: it appends records, and reports when everything stored so
far has been read (another proxy may know a view that is new here). Without rights of the proxy's identity, the store is
off (views/README.md rule 18), and tried again periodically.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from kafka_share_proxy.brokers.cluster_client import AuthenticationNeeded, ClusterClient
from kafka_share_proxy.brokers.cluster_connection import AuthenticationFailed
from kafka_share_proxy.brokers.internal_topics import TopicRefused
from kafka_share_proxy.durable.topic_guard import CHECK_S, TopicGuard
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.lasting_trouble import LastingTrouble
from kafka_share_proxy.loop.promise import Promise, settled
from kafka_share_proxy.views import state_records
from kafka_share_proxy.views.model.catalog import ViewCatalog
from kafka_share_proxy.views.state_topic import KeyValue, ViewTopic
from kafka_share_proxy.wire.errors import ProxyError, RemoteProtocolError, UpstreamLost

FOLLOW_MS = 5_000
"""Milliseconds that one Fetch waits for records, and that `synced` waits until all of them are read."""
PAUSE_MIN_S, PAUSE_S = 0.05, 0.5
"""Seconds after a failure. An append starts with the shorter one, because its topic may just have been created."""
TRIES = 20
"""Maximum number of attempts of one append."""
WRITES_MAX = 10_000
"""Maximum number of records that wait to be written. Further ones are refused."""

_OFF = (AuthenticationNeeded, AuthenticationFailed, TopicRefused)
"""Errors that switch the store off: the proxy's identity has no right, or the topic is unusable."""


class ViewState:
    """Store in the topic `__proxy_views` (`store.ViewStore`)."""

    def __init__(
        self, catalog: ViewCatalog, client: Callable[[], ClusterClient], check_interval_s: float, notes: Notes
    ) -> None:
        self.off = ""
        """Reason why nothing is stored and no plan is known, or empty."""
        self.guard = TopicGuard(state_records.TOPIC, notes)
        self._catalog = catalog
        self._client = client
        self._check_interval_s = check_interval_s
        self._notes = notes
        self._off_since = -check_interval_s
        self._unread = LastingTrouble(notes, "view-state-not-read", "view-state-read")
        self._failing: set[str] = set()
        """Tasks whose last attempt failed."""
        self._syncs: list[Promise[None]] = []
        self._writes: list[tuple[bytes, bytes | None, Promise[None]]] = []
        """Records that wait to be written: key, value, and the promise of the caller."""
        self._has_work = trio.Event()
        self._topic_exists = trio.Event()
        self._position = 0
        """Next offset to read."""
        self._moved = trio.Event()

    # Calls of the handlers

    def synced(self) -> Promise[None]:
        if self.off and trio.current_time() - self._off_since < self._check_interval_s:
            return settled(None)
        promise: Promise[None] = Promise()
        self._syncs.append(promise)
        self._has_work.set()
        return promise

    def store(self, key: bytes, value: bytes | None) -> Promise[None]:
        state_records.take_in(self._catalog, key, value)
        promise: Promise[None] = Promise()
        if len(self._writes) >= WRITES_MAX:
            promise.fail(UpstreamLost(f"{WRITES_MAX} records about views wait to be written"))
            return promise
        self._writes.append((key, value, promise))
        self._has_work.set()
        return promise

    # The tasks

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow)
            nursery.start_soon(self._serve)
            nursery.start_soon(self._watch_settings)

    async def _follow(self) -> None:
        topic = ViewTopic(self._client())
        try:
            while True:
                try:
                    await self._read(topic)
                    self._worked("follow")  # the topic is known not to exist
                except _OFF as error:
                    self._disable(error)
                except ProxyError as error:
                    self._failed("follow", error)
                    await trio.sleep(PAUSE_S)
                    continue
                if self._topic_exists.is_set():  # otherwise _watch_settings may wait for it
                    self._topic_exists = trio.Event()
                with trio.move_on_after(self._check_interval_s):
                    await self._topic_exists.wait()
                    await trio.sleep(PAUSE_MIN_S)
        finally:
            with trio.CancelScope(shield=True):
                await topic.aclose()

    async def _read(self, topic: ViewTopic) -> None:
        """Read the topic until an error. Return if it does not exist."""
        leader = await topic.leader()
        if leader is None:
            return
        self._topic_exists.set()
        async with topic.reading(leader, self._position or None) as reading:
            while True:
                self._take_in(await reading.next(FOLLOW_MS), reading.position)
                self._worked("follow")

    async def _watch_settings(self) -> None:
        """See durable/README.md rule 36."""
        topic = ViewTopic(self._client())
        try:
            while True:
                try:
                    await self._topic_exists.wait()
                    was_unsafe = bool(self.guard.unsafe)
                    await topic.require_safe(self.guard)
                    if was_unsafe:
                        self._enable()
                except _OFF as error:
                    self._disable(error)
                except ProxyError as error:
                    self._failed("settings", error)
                else:
                    self._worked("settings")
                await trio.sleep(CHECK_S)
        finally:
            with trio.CancelScope(shield=True):
                await topic.aclose()

    def _take_in(self, key_values: list[KeyValue], position: int) -> None:
        """Put records into the catalog. `position`: the offset after them."""
        for key, value in key_values:
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
                await self._has_work.wait()
                self._has_work = trio.Event()
                await self._write(topic)
                await self._sync(topic)
        finally:
            with trio.CancelScope(shield=True):
                await topic.aclose()

    async def _sync(self, topic: ViewTopic) -> None:
        """Settle the waiting promises, or try again. The handlers wait for a bounded time."""
        waiting, self._syncs = self._syncs, []
        if not waiting:
            return
        try:
            leader = await topic.leader()
            if leader is not None:
                self._topic_exists.set()
                end = await topic.end(leader)
                with trio.move_on_after(FOLLOW_MS / 1000) as scope:
                    while self._position < end and not self.off:
                        await self._moved.wait()
                if scope.cancelled_caught:
                    raise UpstreamLost(f"{state_records.TOPIC} is not read as fast as it should be")
                if self._position >= end:
                    await topic.require_safe(self.guard)
                    self._enable()
        except _OFF as error:
            self._disable(error)
        except ProxyError as error:
            self._failed("sync", error)
            self._syncs = waiting + self._syncs
            await trio.sleep(PAUSE_S)
            self._has_work.set()
            return
        self._worked("sync")
        for promise in waiting:
            promise.set(None)

    async def _write(self, topic: ViewTopic) -> None:
        writes, self._writes = self._writes, []
        if not writes:
            return
        error: ProxyError = UpstreamLost("nothing was tried")
        for tried in range(TRIES):
            try:
                await self._append(topic, [(key, value) for key, value, _ in writes])
            except _OFF as refusal:
                self._disable(refusal)
                error = refusal
                break
            except ProxyError as trouble:
                error = trouble
                await trio.sleep(min(PAUSE_MIN_S * 2**tried, PAUSE_S))
            else:
                self._enable()
                for _, _, promise in writes:
                    promise.set(None)
                return
        for _, _, promise in writes:
            promise.fail(error)

    async def _append(self, topic: ViewTopic, key_values: list[tuple[bytes, bytes | None]]) -> None:
        """Append records. Creates the topic first, and then raises UpstreamLost: the next attempt appends."""
        leader = await topic.leader()
        if leader is None:
            await topic.create()
            self._notes("view-topic-created", topic=state_records.TOPIC)
            raise UpstreamLost(f"{state_records.TOPIC} was just made")
        self._topic_exists.set()
        await topic.require_safe(self.guard)
        await topic.append(leader, key_values)

    def _failed(self, task: str, error: ProxyError) -> None:
        self._failing.add(task)
        self._unread.happened(str(error))

    def _worked(self, task: str) -> None:
        """End the trouble once no task has any."""
        self._failing.discard(task)
        if not self._failing:
            self._unread.ended()

    def _disable(self, error: ProxyError) -> None:
        text = f"what views belong to is not stored, and there are no plans: {error}"
        if text != self.off:
            self._notes("view-state-off", reason=text)
        self.off, self._off_since = text, trio.current_time()
        self._moved.set()
        self._moved = trio.Event()

    def _enable(self) -> None:
        if self.off:
            self._notes("view-state-on", topic=state_records.TOPIC)
        self.off = ""

"""The fetch half of a ShareFetch: acquire from the cache, else read free heads from the broker, else wait.

Rules: sharegroups/README.md rules 19-26. The request repeats one loop until it has a result or the client's wait is
over:

1. Survey the session's partitions (`session_survey`): ready (the next offset is in the cache), missing (to be read),
   unstarted (without state), or an error. The survey ends with the first that have enough records, if another one had
   all partitions shortly before.
2. Start the unstarted ones (`start_offsets`).
3. Reserve the heads of the missing ones and read them by one Fetch (`head_fetch`), unless there is enough in the cache.
   A missing one that has not been read for a while is read in any case, without waiting, so that a busy partition does
   not starve a quiet one.
4. Acquire from the ready ones (`head_fetch.acquire`), and finish.
5. Otherwise wait until one of the share partitions may have records (`head_reads`).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from kafka_share_proxy.brokers.topic_leaders import RIGHTS_GRACE_S
from kafka_share_proxy.loop.waiting import first_until, settled_by
from kafka_share_proxy.sharegroups.apis.share_requests import refresh
from kafka_share_proxy.sharegroups.fetch.acknowledgements import Acknowledging
from kafka_share_proxy.sharegroups.fetch.chunk_keys import survey_with_keys
from kafka_share_proxy.sharegroups.fetch.head_fetch import HeadFetch, absorb, acquire, read_heads
from kafka_share_proxy.sharegroups.fetch.session_survey import (
    ShareFetching,
    Survey,
    is_wait_over,
    survey_session,
)
from kafka_share_proxy.sharegroups.fetch.start_offsets import start

CHECK_AGAIN_S = 0.02
"""Seconds before the next survey if a partition changed during a survey that let other tasks run."""


async def fetch(fetching: ShareFetching, acknowledging: Acknowledging | None) -> None:
    """Write the acknowledgements of the request, and fetch into `fetching.results`."""
    request = fetching.request
    renews = fetching.version >= 2 and request.is_renew_ack
    if renews or request.max_records <= 0 or request.max_bytes <= 0 or not fetching.order:
        if acknowledging is not None:
            acknowledging.write()
        if fetching.order:
            await survey_session(fetching)
        return
    is_done = (
        acknowledging is not None
        and acknowledging.releases
        and not fetching.holder
        and await _fetch_unreleased(fetching, acknowledging)
    )
    if not is_done:
        if acknowledging is not None and await acknowledging.write_before_fetch(
            request.max_records, is_far=fetching.holder != 0
        ):
            fetching.judged = {}
        await _fetch(fetching)
    figures = fetching.services.figures.of(fetching.group_id)
    acquired_count = sum(1 for result in fetching.results.values() if result.acquired)
    figures.fetch_ratio.observe(acquired_count / len(fetching.order))
    if acquired_count:
        figures.acquire_s.observe(fetching.services.timers.now() - fetching.started_at)


def _survey(fetching: ShareFetching, *, is_whole: bool) -> Coroutine[Any, Any, Survey]:
    """Survey the session's partitions, with the keys of ready records if the group has key order."""
    return survey_with_keys(fetching) if fetching.is_ordered else survey_session(fetching, is_whole=is_whole)


async def _fetch(fetching: ShareFetching) -> None:
    """Acquire as much as the request's limits allow, waiting for it at most the request's wait.

    It also ends with the session: the group was deleted, or the member opened another session. If the group moves to
    another proxy it ends without records, because the response must confirm the acknowledgements before that.
    """
    services, connection, timers = fetching.services, fetching.connection, fetching.services.timers
    confirmed_at, group_id, is_whole = fetching.started_at, fetching.group_id, False
    while services.coordinator.sessions.is_open(fetching.session) and not services.gate.is_closed(group_id):
        if timers.now() - confirmed_at >= RIGHTS_GRACE_S / 2:
            await refresh(connection, services, fetching.order)
            confirmed_at = timers.now()
        survey = await _survey(fetching, is_whole=is_whole)
        wait_is_over = is_wait_over(fetching)
        if survey.unstarted and await start(fetching, survey.unstarted):
            continue
        has_min_bytes = survey.has(fetching.request.min_bytes)
        earlier_fetch = HeadFetch.of(connection)
        new_fetch = None
        if survey.missing and earlier_fetch is None:
            new_fetch = read_heads(fetching, survey, may_wait=not wait_is_over, has_min_bytes=has_min_bytes)
        if new_fetch is None:
            may_read_ahead = earlier_fetch is None and not fetching.has_read
            if (has_min_bytes or wait_is_over) and acquire(fetching, survey, may_read_ahead=may_read_ahead):
                return
            if survey.may_have_missed_records():
                is_whole = True
                continue
            if wait_is_over or fetching.has_only_errors():
                return
        head_fetch = new_fetch or earlier_fetch
        if survey.is_outdated:
            await first_until(timers, timers.now() + CHECK_AGAIN_S)
        elif new_fetch is not None and (survey.ready or wait_is_over):  # this Fetch does not wait for new records
            await first_until(timers, timers.now() + services.options.reservation_grace_s, new_fetch.done)
        else:
            promises = () if head_fetch is None else (head_fetch.done,)
            await services.reads.wait_until(timers, fetching.deadline, fetching.keys(), *promises)
        if head_fetch is not None and head_fetch.done.done:
            await absorb(fetching, head_fetch)


async def _fetch_unreleased(fetching: ShareFetching, acknowledging: Acknowledging) -> bool:
    """Fetch records other than those that the request releases. Return False if there are none.

    Then it waits until the release is stored, at most until the end of the client's wait.
    """
    try:
        is_done = await _acquire_now(fetching)
    finally:
        acknowledging.write()
    if not is_done:
        await settled_by(fetching.services.timers, fetching.deadline, acknowledging.write())
    return is_done


async def _acquire_now(fetching: ShareFetching) -> bool:
    """Acquire what is available now and read free heads, without waiting for new records.

    Return False if that does not satisfy the request.
    """
    services, timers = fetching.services, fetching.services.timers
    survey = await _survey(fetching, is_whole=True)
    min_bytes = fetching.request.min_bytes
    if HeadFetch.of(fetching.connection) is None:
        new_fetch = read_heads(fetching, survey, may_wait=False, has_min_bytes=survey.has(min_bytes))
        if new_fetch is not None:
            await first_until(timers, timers.now() + services.options.reservation_grace_s, new_fetch.done)
            if new_fetch.done.done:
                await absorb(fetching, new_fetch)
            survey = await _survey(fetching, is_whole=True)
    session_is_open = services.coordinator.sessions.is_open(fetching.session)
    return session_is_open and survey.has(min_bytes) and acquire(fetching, survey, may_read_ahead=False)

"""A proxy that kills itself (-9) while it commits for a member whose user text is `die`: FAULT serve --config FILE.

Each fault is a place between two things that must survive each other: see FAULTS.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import yaml
from kafka_share_proxy.app.serving import server
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.commits import storing
from kafka_share_proxy.commits.apis import k08_offset_commit
from kafka_share_proxy.durable.journal import TopicJournal
from kafka_share_proxy.forwarding.served.upstream_requests import send_upstream

FAULTS = ("before the coordinator", "after the coordinator", "append on its way", "stored, not answered")
TRIGGER = "die"


class Armed:
    """True if the next fault happens: a commit with the text is in flight."""

    is_armed = False


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


def _is_deadly(call: Any) -> bool:
    return any(
        TRIGGER in (entry.committed_metadata or "") for topic in call.message.topics for entry in topic.partitions
    )


def install(fault: str) -> None:
    """Have the process die there."""
    commit = vars(k08_offset_commit)["send_upstream"]

    async def requested(call: Any, request: Any) -> Any:
        Armed.is_armed = Armed.is_armed or _is_deadly(call)
        if Armed.is_armed and fault == FAULTS[0]:
            die()
        response = await commit(call, request)
        if Armed.is_armed and fault == FAULTS[1]:
            die()
        return response

    assert commit is send_upstream
    vars(k08_offset_commit)["send_upstream"] = requested
    if fault == FAULTS[2]:
        _when_sent(lambda: Armed.is_armed)
    if fault == FAULTS[3]:
        _before(storing, "_settled", lambda: Armed.is_armed)


def _when_sent(condition: Callable[[], bool]) -> None:
    """Die when a Produce has been sent, in the next iteration or at its response: whichever is first."""
    produce = TopicJournal._produce

    def patched(self: Any, *arguments: Any) -> None:
        produce(self, *arguments)
        if condition():
            self._reactor.call_at(self._reactor.now(), die)

    _replace(TopicJournal, "_produce", patched)
    _before(TopicJournal, "_produced", condition)


def _before(owner: Any, name: str, condition: Callable[[], bool]) -> None:
    plain = getattr(owner, name)

    def patched(*arguments: Any, **options: Any) -> Any:
        if condition():
            die()
        return plain(*arguments, **options)

    _replace(owner, name, patched)


def _replace(owner: Any, name: str, patched: Callable[..., Any]) -> None:
    setattr(owner, name, patched)


def main(fault: str, *arguments: str) -> int:
    if fault != "none":
        install(fault)
    return server.run(Config(**yaml.safe_load(Path(arguments[-1]).read_text())))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

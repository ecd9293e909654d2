"""Requests of handlers under the proxy's own identity (interfaces.OwnQuestions), each on a new connection.

Rare by design: handlers use the client's own connection wherever it leads to the right broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from kafka_share_proxy.brokers.own_connection import OwnSettings, connection
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.errors import ProxyError, UpstreamLost
from kafka_share_proxy.wire.messages import Message, RequestMessage
from kafka_share_proxy.wire.values import Address

R = TypeVar("R", bound=Message)
"""Class of the response."""

QUESTIONS_MAX = 32
"""Maximum number of requests in flight. Further ones fail immediately."""
ANSWER_S = 5.0
"""Seconds to connect and receive the response before a broker counts as lost. The caller waits for one request only."""


class OwnIdentityQuestions:
    """Sender of requests in the background of one nursery."""

    def __init__(
        self, nursery: trio.Nursery, settings: OwnSettings, address_of: Callable[[int], Address | None]
    ) -> None:
        """`address_of`: returns a broker's upstream address by its node id."""
        self._nursery = nursery
        self._settings = settings
        self._address_of = address_of
        self.under_way = 0

    def ask(self, node_id: int, key: int, request: RequestMessage[R]) -> Promise[R]:
        """See interfaces.OwnQuestions."""
        answer: Promise[R] = Promise()
        address = self._address_of(node_id)
        if address is None:
            answer.fail(UpstreamLost(f"no address is known for broker {node_id}"))
        elif self.under_way >= QUESTIONS_MAX:
            answer.fail(UpstreamLost(f"{QUESTIONS_MAX} questions of the proxy's own are under way"))
        else:
            self.under_way += 1
            self._nursery.start_soon(self._ask, address, key, request, answer, name="own question")
        return answer

    async def _ask(self, address: Address, key: int, request: RequestMessage[R], answer: Promise[R]) -> None:
        try:
            with trio.fail_after(ANSWER_S):
                async with connection(address, self._settings) as opened:
                    found = await opened.ask(key, request)
        except ProxyError as error:
            answer.fail(error)
        except trio.TooSlowError:
            answer.fail(UpstreamLost(f"{address} did not answer within {ANSWER_S:g} s"))
        else:
            answer.set(found)
        finally:
            self.under_way -= 1

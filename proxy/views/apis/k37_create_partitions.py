"""CreatePartitions (key 37): a view grows with its base, and by nobody's hand.

Versions: all. Views get 44 (POLICY_VIOLATION); the rest of the request is asked of the broker.
"""

from __future__ import annotations

from proxy.forwarding.ask_and_reply import reply
from proxy.forwarding.chain import answer_behind
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.interfaces import Call
from proxy.views.apis.named_views import NAMES_VIEW
from proxy.views.model.names import is_view
from proxy.views.services import ViewServices
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode

KEY = ApiKey.CREATE_PARTITIONS


async def handle(call: Call[messages.CreatePartitionsRequest], _: ViewServices) -> bytes | None:
    """A request that may name views."""
    request = call.message
    refused = [topic.name for topic in request.topics or () if is_view(topic.name)]
    if not refused:
        return None
    request.topics = [topic for topic in request.topics if not is_view(topic.name)]
    message = messages.CreatePartitionsResponse
    answer = await answer_behind(call) if request.topics else message(results=[])
    code, text = int(ErrorCode.POLICY_VIOLATION), "a view grows when its base does"
    results = [message.CreatePartitionsTopicResult(name=name, error_code=code, error_message=text) for name in refused]
    answer.results = [*(answer.results or ()), *results]
    return reply(call, answer)


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: NAMES_VIEW)

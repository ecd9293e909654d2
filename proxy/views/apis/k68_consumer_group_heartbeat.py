"""ConsumerGroupHeartbeat (key 68): views it subscribes to are made ready, then it is forwarded.

librdkafka asks for no Metadata before it joins (KIP-848), and a broker assigns nothing of a topic that does not exist.
Metadata can say that nothing is to be created; this request cannot, and who subscribes to a view asks for it. What
stands in the way of a view is not told here: the broker accepts names of topics that do not exist, and Metadata says
what is wrong with them. A pattern is judged by the broker, which sees the topics of views as any others.
"""

from __future__ import annotations

from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.interfaces import Call
from proxy.views.apis.named_views import NAMES_VIEW
from proxy.views.model.names import is_view
from proxy.views.services import ViewServices
from proxy.wire import messages
from proxy.wire.api_key import ApiKey

KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT


async def handle(call: Call[messages.ConsumerGroupHeartbeatRequest], views: ViewServices) -> None:
    """Make them ready; the heartbeat itself is the broker's."""
    names = [name for name in call.message.subscribed_topic_names or () if is_view(name)]
    await views.ensure(call.connection, names)


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: NAMES_VIEW)

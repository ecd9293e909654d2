"""ListConfigResources (key 74): groups that have settings here belong into the list.

Versions: all; those whose requests name resource types (v1, KIP-1142) come to the handler when groups are among them.

Behaviour
- The broker answers, and judges the right (DESCRIBE_CONFIGS on the cluster): what it refuses is passed on.
- Groups with `share.*` settings kept here follow, unless the broker has settings of other types for the same group and
  names it already. Tools then describe each (key 32).
"""

from __future__ import annotations

from proxy.apis.exchange import ask_upstream, reply
from proxy.apis.group_configs import GROUP
from proxy.apis.group_ids import decoded
from proxy.apis.ports import Call
from proxy.apis.services import Services
from proxy.errors import ErrorCode
from proxy.wire import headers, registry

KEY = 74
RESOURCE_TYPES_VERSION = 1
"""Before, the request is about client metrics only."""


def serve_here(frame: memoryview) -> bool:
    """Whether groups are asked for; no types at all mean all of them."""
    request = decoded(frame)
    if request is None or headers.peek(frame)[1] < RESOURCE_TYPES_VERSION:
        return False
    return not request.resource_types or GROUP in request.resource_types


async def handle(call: Call, services: Services) -> bytes:
    """Merge the broker's list with the groups that have settings here."""
    answer = await ask_upstream(call, call.message)
    if answer.error_code == ErrorCode.NONE:
        named = {entry.resource_name for entry in answer.config_resources if entry.resource_type == GROUP}
        resource = registry.message("ListConfigResourcesResponse").ConfigResource
        answer.config_resources += [
            resource(resource_name=group_id, resource_type=GROUP)
            for group_id in services.coordinator.groups_with_settings()
            if group_id not in named
        ]
    return reply(call, answer)

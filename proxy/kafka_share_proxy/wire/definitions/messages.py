"""Message classes by name: `messages.ShareFetchRequest`, `messages.FetchResponse.PartitionData`.

Refer to them as attributes of this module, as above: importing them one by one would build all of them at startup.
"""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.wire.definitions.message_classes import Message, RequestMessage, message_class
from kafka_share_proxy.wire.definitions.specs import SchemaError

__all__ = ["Message", "RequestMessage"]


def __getattr__(name: str) -> Any:
    """Raises AttributeError if there is no such definition."""
    if name.startswith("__"):  # every import of it looks for __path__, which needs no look into the definitions
        raise AttributeError(f"no message definition is called {name!r}", name=name, obj=None)
    try:
        loaded = message_class(name)
    except SchemaError as error:
        raise AttributeError(str(error), name=name, obj=None) from None
    globals()[name] = loaded
    return loaded

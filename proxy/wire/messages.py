"""The message classes by name: `messages.ShareFetchRequest`, `messages.FetchResponse.PartitionData`.

A class is made when it is first named (`message_classes`), and stands here from then on. Name them as attributes of
this module, as above: imported one by one they would all be made when the program starts. Their fields are declared in
`messages.pyi`, which `python -m proxy.wire.stubs` writes from the definitions; so mypy knows every one of them.
"""

from __future__ import annotations

from typing import Any

from proxy.wire.message_classes import Message, RequestMessage, message_class
from proxy.wire.specs import SchemaError

__all__ = ["Message", "RequestMessage"]


def __getattr__(name: str) -> Any:
    """Make the class of a message when it is first named.

    Raises:
        AttributeError: there is no such definition.
    """
    try:
        made = message_class(name)
    except SchemaError as error:
        raise AttributeError(str(error), name=name, obj=None) from None
    globals()[name] = made
    return made

"""Message classes by name."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kafka_share_proxy.wire.definitions import message_classes, messages, registry


def test_a_class_is_found_by_its_name() -> None:
    """The same one as everywhere else; a codec takes no other."""
    assert messages.ShareFetchRequest is registry.message("ShareFetchRequest")
    assert messages.PeerHello is message_classes.message_class("PeerHello")
    assert "ShareFetchRequest" in vars(messages)


def test_a_name_that_no_definition_has_is_an_attribute_error() -> None:
    """As of every module, so that `hasattr` and imports behave."""
    with pytest.raises(AttributeError, match="ShareFetchRequets"):
        _ = messages.ShareFetchRequets  # type: ignore[attr-defined]


def test_a_class_is_built_at_its_first_use() -> None:
    """Making all of them takes a tenth of a second, which no command should wait for at its start."""
    code = "import kafka_share_proxy.app.cli, kafka_share_proxy.app.serving.composition\n"
    code += "from kafka_share_proxy.wire.definitions import message_classes as m\nprint(*m._CLASSES)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []

"""Services for handlers of views."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.views.settings import Views
from kafka_share_proxy.wire.records import compression

from tests.support.ports import World


def test_the_settings_name_the_codec_of_responses() -> None:
    creation: Any = None
    for codec in (compression.NONE, compression.LZ4, compression.ZSTD):
        options = Views(codec=compression.NAMES[codec])
        views = ViewServices(services=World().services, creation=creation, options=options)
        assert views.reads.codec == codec

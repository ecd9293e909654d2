"""Generated code that passes over fields."""

from __future__ import annotations

from kafka_share_proxy.wire.codec.skipping import Skipper
from kafka_share_proxy.wire.definitions import registry

from tests.support.repeated import repeated
from tests.wire.samples import Samples, every_codec

NAMES = [(name, version) for name, version in every_codec() if name.endswith("Response")]


@repeated("name, version", NAMES)
def test_a_message_is_passed_over_to_its_end(name: str, version: int) -> None:
    """With and without tagged fields in it."""
    spec = registry.codec(name, version).spec
    skipper = Skipper(spec, version)
    with skipper.block("def behind(buf, p, end):"):
        skipper.struct(spec.root)
        skipper.flush()
        skipper.line("return p")
    behind = skipper.source.function("behind")
    for seed in range(4):
        body = registry.codec(name, version).encode(Samples((name, version, seed), tags=True).message(spec, version))
        assert behind(b"x" * 3 + body, 3, 3 + len(body)) == 3 + len(body)

"""Changes of acknowledgement types in requests."""

from __future__ import annotations

from tests.support.faulty_broker import Change


def types(old: int, new: int | None) -> Change:
    """Return a change of acknowledgement types in a request; None drops the batches with the type."""

    def apply(message: object) -> None:
        for topic in message.topics:  # type: ignore[attr-defined]
            for partition in topic.partitions:
                batches = partition.acknowledgement_batches
                for batch in batches:
                    batch.acknowledge_types = [
                        new if kind == old and new is not None else kind for kind in batch.acknowledge_types
                    ]
                if new is None:
                    partition.acknowledgement_batches = [b for b in batches if old not in b.acknowledge_types]

    return apply

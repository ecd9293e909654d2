"""Services for the handlers of every feature."""

from __future__ import annotations

from dataclasses import fields

from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.views.services import ViewServices

from tests.support.ports import World


def test_a_feature_adds_to_what_all_have() -> None:
    """One object therefore serves all lower rooms, whichever feature uses it."""
    assert issubclass(ShareServices, Services)
    assert {field.name for field in fields(Services)} < {field.name for field in fields(ShareServices)}
    assert "services" in {field.name for field in fields(ViewServices)}


def test_nothing_is_requested_without_an_identity() -> None:
    """The default is to send no request, and to use the documented values."""
    services = World().services
    alone = Services(
        **{name: getattr(services, name) for name in ("limits", "timers", "notes", "book", "topology", "versions")},
        responses=services.responses,
        slices=services.slices,
    )
    assert alone.own is None
    assert (alone.options.rights_cache_s, alone.options.metadata_age_s) == (15.0, 1.0)

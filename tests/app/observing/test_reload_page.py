"""Page /reload of the admin listener."""

from http import HTTPStatus

from kafka_share_proxy.app.observing import reload_page
from kafka_share_proxy.app.settings.live_settings import Reloaded
from kafka_share_proxy.feature.admin import AdminRequest
from kafka_share_proxy.feature.errors import ConfigError


class Reloads:
    """Counts reloads, or refuses them."""

    def __init__(self, mistake: str = "") -> None:
        self.reasons: list[str] = []
        self._mistake = mistake

    async def __call__(self, reason: str) -> Reloaded:
        self.reasons.append(reason)
        if self._mistake:
            raise ConfigError(self._mistake)
        return Reloaded(("drain_s",), ("admin",))


async def test_only_those_who_may_change_something_reload() -> None:
    reloads = Reloads()
    assert (await reload_page.response(reloads, AdminRequest(method="GET")))[0] is HTTPStatus.METHOD_NOT_ALLOWED
    forbidden = AdminRequest(method="POST", forbidden="no")
    assert await reload_page.response(reloads, forbidden) == (HTTPStatus.FORBIDDEN, {"reason": "no"})
    assert reloads.reasons == []


async def test_a_reload_returns_the_names_of_settings() -> None:
    body = {"changed": ("drain_s",), "needs_restart": ("admin",)}
    assert await reload_page.response(Reloads(), AdminRequest(method="POST")) == (HTTPStatus.OK, body)


async def test_mistakes_are_returned() -> None:
    status, body = await reload_page.response(Reloads("drain_s: not a number"), AdminRequest(method="POST"))
    assert (status, body) == (HTTPStatus.UNPROCESSABLE_ENTITY, {"reason": "drain_s: not a number"})


async def test_a_single_process_says_how_to_upgrade_it() -> None:
    status, body = await reload_page.no_workers(AdminRequest(method="POST"))
    assert status is HTTPStatus.CONFLICT
    assert "restart" in str(body)
    assert "workers" in str(body)

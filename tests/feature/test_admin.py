"""Port between the admin listener and the features."""

from __future__ import annotations

import json
from http import HTTPStatus

from kafka_share_proxy.feature.admin import AdminRequest, refused


def test_refusal_has_its_reason_as_json() -> None:
    status, body = refused(HTTPStatus.CONFLICT, "it is in use")
    assert (status, json.dumps(body)) == (409, '{"reason": "it is in use"}')


def test_request_may_change_something_unless_a_reason_forbids_it() -> None:
    assert AdminRequest(method="POST").forbidden == ""

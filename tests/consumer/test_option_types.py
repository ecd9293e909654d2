"""The keyword arguments that type checkers see are the fields of the options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from types import ModuleType
from typing import Any, get_type_hints

import pytest
from kafka_share_proxy.consumer import options
from kafka_share_proxy.consumer.option_types import ConsumerKeywords, ShareConsumerKeywords
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.share import share_options
from kafka_share_proxy.consumer.share.share_options import ShareConsumerOptions


@pytest.mark.parametrize(
    ("keywords", "kind", "module"),
    [(ConsumerKeywords, ConsumerOptions, options), (ShareConsumerKeywords, ShareConsumerOptions, share_options)],
)
def test_keywords_and_fields_have_the_same_names_and_types(keywords: Any, kind: Any, module: ModuleType) -> None:
    # A public class shows the package as its module, which does not have the names of its annotations.
    hints = get_type_hints(kind, {**vars(options), **vars(module)})
    expected = {each.name: hints[each.name] for each in fields(kind) if each.init and each.name != "group_id"}
    assert get_type_hints(keywords) == expected
    assert not keywords.__required_keys__


def test_a_list_of_assignors_is_kept_as_a_tuple() -> None:
    names: Sequence[Any] = ["range"]
    assert ConsumerOptions(assignors=names).assignors == ("range",)

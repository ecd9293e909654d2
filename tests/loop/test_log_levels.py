"""Levels of log events."""

import logging

from kafka_share_proxy.loop.log_levels import DEBUG, ERROR, INFO, WARNING


def test_levels_are_those_of_the_standard_library() -> None:
    assert (DEBUG, INFO, WARNING, ERROR) == (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)

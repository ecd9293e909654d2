"""Show what a failed assertion of a script compared, as in a test."""

import pytest

pytest.register_assert_rewrite(
    "tests.oracle.items_fetch", "tests.oracle.items_groups", "tests.oracle.items_renew", "tests.support.worlds"
)

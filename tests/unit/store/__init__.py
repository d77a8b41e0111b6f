"""Tests of the stores; the contract that all of them keep is in `store_contract.py`."""

import pytest

pytest.register_assert_rewrite("tests.unit.store.store_contract")

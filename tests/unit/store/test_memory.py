"""MemoryStore keeps the contract."""

from __future__ import annotations

import pytest

from shim.store.base import Store
from shim.store.memory import MemoryStore
from tests.unit.store.store_contract import CASES


@pytest.mark.parametrize("name", CASES)
async def test_contract(name: str) -> None:
    store: Store = MemoryStore()
    await store.open()
    await CASES[name](store)
    await store.close()

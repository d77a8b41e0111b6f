"""How much memory is free, by what Linux tells of the machine and of the container."""

from __future__ import annotations

from pathlib import Path

import pytest

from shim.agents.spares.spare_agents import free_bytes

MIB = 2**20


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:       8388608 kB\nMemAvailable:   4194304 kB\n")
    return file


def limit(folder: Path, most: str, current: int, cached: int) -> None:
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{current}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\n")


def test_a_machine_without_a_limit(tmp_path: Path, meminfo: Path) -> None:
    assert free_bytes(meminfo, tmp_path) == 4096 * MIB
    limit(tmp_path, "max", 100, 0)
    assert free_bytes(meminfo, tmp_path) == 4096 * MIB


def test_the_limit_of_a_container_counts_and_its_cache_is_free(tmp_path: Path, meminfo: Path) -> None:
    limit(tmp_path, str(1000 * MIB), 900 * MIB, 300 * MIB)
    assert free_bytes(meminfo, tmp_path) == 400 * MIB
    limit(tmp_path, str(9000 * MIB), 900 * MIB, 0)
    assert free_bytes(meminfo, tmp_path) == 4096 * MIB, "the machine has less"


def test_another_system_has_no_figure(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "none", tmp_path) is None
    (tmp_path / "meminfo").write_text("nonsense\n")
    assert free_bytes(tmp_path / "meminfo", tmp_path) is None

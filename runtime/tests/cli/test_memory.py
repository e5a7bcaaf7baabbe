"""``statefulspark memory``: the numbers, in bytes for programs and in a table that fits a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from statefulspark.cli.main import app

MIB = 1 << 20
_MANIFEST = """
apiVersion: statefulspark.io/v1alpha1
kind: StatefulSparkJob
metadata: {name: orders}
spec:
  job: {module: shop.orders}
  parallelism: 6
  executor: {slots: 2, memory: %s, managedMemory: {size: 128Mi}}
  checkpointing: {dir: "file:///checkpoints"}
"""


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["memory", *arguments], env={"COLUMNS": "100"})


def document(*arguments: str) -> dict[str, Any]:
    result = invoke(*arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_every_number_in_bytes() -> None:
    """Flink's numbers of 128 MiB, of the default write buffer."""
    found = document("--managed", "128Mi")
    expected = {
        "cache_capacity": 111_848_106,
        "write_buffer_capacity": 44_739_242,
        "high_prio_pool_capacity": 11_184_810,
        "mutable_limit": 39_146_836,
        "arena_block_size": 8 * MIB,
        "warnings": [],
    }
    assert {name: found[name] for name in expected} == expected
    assert document("--managed", str(128 * MIB)) == found


def test_slots_share_managed_memory() -> None:
    """The numbers are those of one slot, which has its even share; the totals are given besides."""
    one, four = document("--managed", "128Mi"), document("--managed", "512Mi", "--slots", "4")
    assert four["cache_capacity"] == one["cache_capacity"]
    assert four["totals"]["cache_capacity"] == 4 * one["cache_capacity"]


def test_ratios_and_sizes_are_options() -> None:
    """Each option has its effect."""
    found = document(
        *("--managed", "1Gi", "--write-buffer-ratio", "0.3", "--high-prio-pool-ratio", "0.25"),
        *("--write-buffer-size", "16mb", "--arena-block-size", "0"),
    )
    assert found["cache_capacity"] == 9 * (1 << 30) // 10
    assert found["write_buffer_capacity"] == 2 * (1 << 30) // 10
    assert found["high_prio_pool_capacity"] == found["cache_capacity"] // 4
    assert found["arena_block_size"] == 2 * MIB
    assert document("--managed", "1Gi", "--arena-block-size", "12345b")["arena_block_size"] == 12_345


def test_a_small_budget_warns_and_a_tiny_one_is_an_error() -> None:
    """An arena block above the mutable limit is a warning in the answer and on stderr; too small a budget ends with 2 and the smallest."""
    found = document("--managed", "20Mi")
    assert "at least 27.43Mi" in found["warnings"][0]
    assert found["smallest_managed_per_slot"] == 28_760_943
    result = invoke("--managed", "20Mi")
    assert result.exit_code == 0
    assert "warning: An arena block of 8Mi" in result.stderr
    tiny = invoke("--managed", "64Mi", "--slots", "16")
    assert tiny.exit_code == 2
    assert "--managed: 64Mi for 16 slots is 4Mi per slot, too small for RocksDB. Give at least 256Mi, 16Mi per slot" in tiny.stderr
    assert "1Ki per slot is too small for RocksDB. Give at least 16Mi per slot" in invoke("--managed", "1Ki").stderr


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((), "MANIFEST: give either"),
        (("job.yaml", "--managed", "1Gi"), "MANIFEST: give either"),
        (("--managed", "much"), "--managed: not a byte size"),
        (("--managed", "1Gi", "--write-buffer-size", "x"), "--write-buffer-size: not a byte size"),
        (("--managed", "1Gi", "--write-buffer-ratio", "1.5"), "write buffer ratio: expected a number between 0 and 1"),
        (("--managed", "1Gi", "--write-buffer-ratio", "0.9", "--high-prio-pool-ratio", "0.2"), "high-priority pool ratio: write buffers"),
    ],
)
def test_wrong_input_names_the_option(arguments: tuple[str, ...], field: str) -> None:
    """Exit code 2 and the option that is wrong."""
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert field in result.stderr


def test_the_memory_of_a_job(tmp_path: Path) -> None:
    """All parts of both pods, which add up, the split of a slot and Spark's settings; the table says the same in 100 columns."""
    manifest = tmp_path / "job.yaml"
    manifest.write_text(_MANIFEST % "4Gi")
    found = document(str(manifest))
    for role in ("driver", "executor"):
        assert sum(part["bytes"] for part in found[role]["parts"]) == found[role]["total_bytes"]
        assert all(part["bytes"] == part["each_bytes"] * part["count"] for part in found[role]["parts"])
    assert found["executors"] == 3
    assert found["total_bytes"] == found["driver"]["total_bytes"] + 3 * found["executor"]["total_bytes"]
    assert found["slot"]["rocksdb"]["cache_capacity"] == 111_848_106
    assert set(found["spark_conf"]) == {f"spark.{role}.{name}" for role in ("driver", "executor") for name in ("memory", "memoryOverhead")}
    table = invoke(str(manifest)).stdout
    assert max(map(len, table.splitlines())) <= 100
    for part in (*found["driver"]["parts"], *found["executor"]["parts"]):
        assert part["name"] in table
    assert "2 x 128Mi" in table


def test_a_manifest_too_small_is_refused(tmp_path: Path) -> None:
    """The same refusal as at submit time."""
    manifest = tmp_path / "job.yaml"
    manifest.write_text(_MANIFEST % "1Gi")
    result = invoke(str(manifest))
    assert result.exit_code == 2
    assert "spec.executor.memory: 480Mi heap + " in result.stderr
    assert "Set memory to at least" in result.stderr

"""The options factory is found, tried before anything starts, and reaches slots that cannot import it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from structlog.testing import capture_logs

from statefulspark.config.job import StatefulSparkJob
from statefulspark.config.manifest import validate_job
from statefulspark.config.state_backend import StateBackendSpec, StateBackendType
from statefulspark.errors import InvalidInputError
from statefulspark.exchange.config import SlotConfig
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.exchange.rocksdb_choice import RocksDBChoice
from statefulspark.job.start.options_factory import rocksdb_choice
from statefulspark.rocksdb.settings import RocksDBSettings
from statefulspark.slot.rocksdb_settings import rocksdb_options
from statefulspark.storage.open import open_store
from statefulspark.storage.storage_settings import StorageSettings

MIB = 1 << 20
FACTORY = """
    from dataclasses import replace

    from flight_sizes import BLOCK_BYTES


    def tune(options):
        return replace(options, block_bytes=BLOCK_BYTES, write_buffer_bytes=options.write_buffer_bytes // 2)


    def broken(options):
        raise RuntimeError("no disk")


    def forgetful(options):
        replace(options, block_bytes=BLOCK_BYTES)


    not_a_function = 3
"""
CLASSES = """
    from dataclasses import replace

    from flight_sizes import BLOCK_BYTES
    from statefulspark import ConfigurableRocksDBOptionsFactory, RocksDBOptionsFactory


    class Tuned(RocksDBOptionsFactory):
        def create_options(self, current_options):
            return replace(current_options, block_bytes=BLOCK_BYTES)


    class Flights(ConfigurableRocksDBOptionsFactory):
        def __init__(self):
            self.jobs = None

        def configure(self, configuration):
            self.jobs = configuration.get_integer("flights.jobs", 3)
            return Tuned() if configuration.get_boolean("flights.only-blocks", False) else self

        def create_options(self, current_options):
            return replace(current_options, block_bytes=BLOCK_BYTES, background_jobs=self.jobs)


    class Forgetful(Flights):
        def configure(self, configuration):
            super().configure(configuration)


    class Closed(Tuned):
        def __init__(self, path):
            self.path = path


    class Unfinished(RocksDBOptionsFactory):
        pass


    class Stranger:
        def __init__(self, options):
            self.options = options


    made = Tuned()


    def plain(options):
        return options
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a job's script, with a factory and a module that the factory imports; importable as `load_pipeline` leaves it."""
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "flight_options.py").write_text(dedent(FACTORY))
    (folder / "flight_sizes.py").write_text("BLOCK_BYTES = 32 << 10\n")
    (folder / "flight_classes.py").write_text(dedent(CLASSES))
    (folder / "torn.py").write_text("1 / 0\n")
    (folder / "script.py").write_text("")
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in ("flight_options", "flight_classes", "flight_sizes"):
        sys.modules.pop(name, None)


def _manifest(code: Path, memory: dict[str, Any] | None = None, own: dict[str, Any] | None = None, **rocksdb: Any) -> StatefulSparkJob:
    return validate_job(
        {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": "flights"},
            "spec": {
                "job": {"script": str(code / "script.py")},
                "parallelism": 1,
                "checkpointing": {"dir": f"file://{code}/storage"},
                "stateBackend": {"type": "rocksdb", "options": own or {}, "rocksdb": {"memory": memory or {}, **rocksdb}},
            },
        }
    )


def _slot_config(code: Path, choice: RocksDBChoice, **fields: Any) -> SlotConfig:
    return SlotConfig(
        coordinator=Endpoint(location="grpc+unix:///nowhere", secret=""),
        job_name="flights",
        parallelism=1,
        max_parallelism=8,
        steps=b"",
        python_path=(),
        store=open_store(f"file://{code}/storage"),
        storage=StorageSettings(),
        backend="rocksdb",
        rocksdb=choice,
        **fields,
    )


def test_the_slot_opens_rocksdb_as_the_factory_says(code: Path) -> None:
    """Factory over single options over predefined, from the manifest to what a slot's stores are opened with."""
    manifest = _manifest(
        code,
        predefinedOptions="FLASH_SSD_OPTIMIZED",
        options={"writebuffer.size": "8mb", "block.blocksize": "4kb"},
        optionsFactory="flight_options:tune",
    )
    options = rocksdb_options(_slot_config(code, rocksdb_choice(manifest)))
    assert options is not None
    assert options.settings == RocksDBSettings(background_jobs=4, block_bytes=32 << 10, write_buffer_bytes=4 * MIB)
    assert options.memory is not None
    assert options.memory.cache_bytes == 111_848_106


def test_the_factory_runs_where_its_modules_cannot_be_imported(code: Path) -> None:
    """They are sent with it: a fresh process that knows nothing of the job's folder calls it."""
    choice = rocksdb_choice(_manifest(code, optionsFactory="flight_options:tune"))
    program = (
        "import sys; from statefulspark.exchange.rocksdb_choice import RocksDBChoice;"
        "print(RocksDBChoice(factory=sys.stdin.buffer.read()).final().settings.block_bytes)"
    )
    assert choice.factory is not None
    done = subprocess.run([sys.executable, "-c", program], input=choice.factory, capture_output=True, check=True, cwd="/")
    assert done.stdout.decode().strip() == str(32 << 10)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("flight_options:broken", "the options factory broken raised RuntimeError: no disk. Correct it"),
        ("flight_options:forgetful", "the options factory forgetful returned a NoneType. Return a RocksDBSettings"),
        ("flight_options:not_a_function", "flight_options has no class or function 'not_a_function'. Define `class not_a_function"),
        ("flight_options:missing", "flight_options has no class or function 'missing'"),
        ("flight_classes:made", "flight_classes has no class or function 'made'. Define `class made"),
        ("flight_classes:Closed", r"the options factory Closed raised TypeError: .*'path'. Correct it; a slot makes it without arguments"),
        ("flight_classes:Unfinished", "the options factory Unfinished raised TypeError: .*create_options"),
        (
            "flight_classes:Stranger",
            "the class Stranger is not a RocksDBOptionsFactory. Derive it from statefulspark.RocksDBOptionsFactory",
        ),
        ("flight_classes:Forgetful", "configure of the options factory Forgetful returned a NoneType. End configure with `return self`"),
        ("flight_optoins:tune", "cannot import 'flight_optoins'. Put it beside the script"),
        ("torn:tune", "importing torn raised ZeroDivisionError: division by zero"),
    ],
)
def test_a_wrong_factory_is_refused_before_anything_starts(code: Path, name: str, sentence: str) -> None:
    """By the driver, naming the field; a slot never sees it."""
    with pytest.raises(InvalidInputError, match=f"^spec.stateBackend.rocksdb.optionsFactory: {sentence}"):
        rocksdb_choice(_manifest(code, optionsFactory=name))


@pytest.mark.parametrize(
    ("own", "jobs"), [({}, 3), ({"flights.jobs": 4, "flights.unknown": "x"}, 4), ({"flights.jobs": "5", "flights.only-blocks": True}, 2)]
)
def test_a_class_reads_its_own_settings(code: Path, own: dict[str, Any], jobs: int) -> None:
    """YAML's numbers and booleans too; ``configure`` may hand over to another factory. In a fresh process as in the driver."""
    manifest = _manifest(code, own=own, optionsFactory="flight_classes:Flights")
    choice = rocksdb_choice(manifest)
    expected = RocksDBSettings(block_bytes=32 << 10, background_jobs=jobs)
    options = rocksdb_options(_slot_config(code, choice))
    assert options is not None
    assert options.settings == expected
    program = (
        "import pickle, sys; settings = pickle.load(sys.stdin.buffer).final().settings;"
        "print(settings.block_bytes, settings.background_jobs)"
    )
    done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(choice), capture_output=True, check=True, cwd="/")
    assert done.stdout.split() == [str(expected.block_bytes).encode(), str(jobs).encode()]


def test_a_class_without_settings_of_its_own(code: Path) -> None:
    """It is made without arguments, and set as the factory in the log and on the status page."""
    final = rocksdb_choice(_manifest(code, options={"thread.num": 4}, optionsFactory="flight_classes:Tuned")).final()
    assert final.settings == RocksDBSettings(block_bytes=32 << 10, background_jobs=4)
    assert final.set_by == {"background_jobs": "options", "block_bytes": "optionsFactory"}


@pytest.mark.parametrize(
    ("name", "own", "sentence"),
    [
        ("Flights", {"flights.jobs": "many"}, r"spec.stateBackend.options.flights.jobs: is not a whole number. Write it without a unit"),
        ("Flights", {"flights.only-blocks": "yes"}, "spec.stateBackend.options.flights.only-blocks: is neither true nor false"),
        (
            "Flights",
            {"flights.jobs": 10**9},
            "spec.stateBackend.rocksdb.optionsFactory: the options factory Flights raised InvalidInputError",
        ),
        (
            "Tuned",
            {"flights.jobs": 3},
            "spec.stateBackend.options: has no effect: Tuned is not a ConfigurableRocksDBOptionsFactory. Derive",
        ),
        ("plain", {"flights.jobs": 3}, "spec.stateBackend.options: has no effect: plain is not a ConfigurableRocksDBOptionsFactory"),
    ],
)
def test_wrong_settings_of_a_class_are_refused(code: Path, name: str, own: dict[str, Any], sentence: str) -> None:
    """By the driver, naming the setting and never its text; also where nothing would read them."""
    with pytest.raises(InvalidInputError, match=f"^{sentence}") as caught:
        rocksdb_choice(_manifest(code, own=own, optionsFactory=f"flight_classes:{name}"))
    assert "many" not in str(caught.value)


def test_the_log_says_what_managed_memory_overrides(code: Path) -> None:
    """A warning for each option that somebody chose and that does not hold, in the driver and in each slot; none for our own defaults."""
    with capture_logs() as logs:
        choice = rocksdb_choice(_manifest(code, options={"block.cache-size": "1gb", "writebuffer.size": "1gb", "thread.num": "3"}))
        rocksdb_options(_slot_config(code, choice))
    told = [(line["event"], line["option"], line["set_by"], line["wanted"], line["log_level"]) for line in logs]
    event = "managed memory overrides a RocksDB option"
    once = [(event, "block.cache-size", "options", "1Gi", "warning"), (event, "writebuffer.size", "options", "1Gi", "warning")]
    assert told == once + once
    with capture_logs() as logs:
        rocksdb_choice(_manifest(code))
    assert logs == []


def test_a_factory_can_be_overridden_too(code: Path) -> None:
    """What the factory chose is named as the factory's."""
    (code / "flight_sizes.py").write_text("BLOCK_BYTES = 8 << 10\n")
    with capture_logs() as logs:
        rocksdb_choice(_manifest(code, {"fixedPerSlot": "16Mi"}, optionsFactory="flight_options:tune"))
    assert [(line["option"], line["set_by"], line["wanted"]) for line in logs] == [("writebuffer.size", "optionsFactory", "32Mi")]


def test_without_managed_memory_each_instance_takes_what_its_options_say(code: Path) -> None:
    """Nothing is shared or overridden, and the log gives the bound; ``fixedPerSlot`` wins over ``managed: false``."""
    manifest = _manifest(code, {"managed": False}, options={"block.cache-size": "32mb", "writebuffer.size": "16mb"})
    with capture_logs() as logs:
        choice = rocksdb_choice(manifest)
    assert [(line["event"].split(":")[0], line["instance_at_most"]) for line in logs] == [("RocksDB's memory is not managed", "64Mi")]
    options = rocksdb_options(_slot_config(code, choice, managed=False))
    assert options is not None
    assert options.memory is None
    fixed = rocksdb_options(_slot_config(code, choice, managed=False, fixed_per_slot=24 * MIB))
    assert fixed is not None
    assert fixed.memory is not None
    assert fixed.memory.cache_bytes == 20 * MIB


def test_a_budget_that_is_too_small_is_refused(code: Path) -> None:
    """Before anything starts, with the smallest that works."""
    with pytest.raises(InvalidInputError, match=r"4Mi.*Give at least"):
        rocksdb_choice(_manifest(code, {"fixedPerSlot": "4Mi"}))


def test_nothing_is_loaded_for_other_backends(code: Path) -> None:
    """State in memory has no native options."""
    manifest = _manifest(code)
    spec = manifest.spec.model_copy(update={"state_backend": StateBackendSpec(type=StateBackendType.MEMORY)})
    assert rocksdb_choice(manifest.model_copy(update={"spec": spec})) == RocksDBChoice()

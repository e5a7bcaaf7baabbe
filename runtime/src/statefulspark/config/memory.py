"""From the fields of a manifest to the memory of every process of the job. Pure; run, command line and operator call it."""

from __future__ import annotations

from dataclasses import dataclass

from statefulspark.config.resources import DriverSpec, ExecutorSpec
from statefulspark.config.rocksdb.options import choose
from statefulspark.config.state_backend import BACKENDS, StateBackendSpec, StateBackendType
from statefulspark.errors import InvalidInputError
from statefulspark.memory.baselines import MEBIBYTE
from statefulspark.memory.driver import plan_driver, smallest_driver_bytes
from statefulspark.memory.executor import (
    ExecutorRequest,
    SlotWork,
    managed_bytes_per_slot,
    plan_executor,
    slot_work,
    smallest_executor_bytes,
)
from statefulspark.memory.process_memory import ProcessMemory
from statefulspark.memory.split import MANAGED_BYTES_MIN, MemorySplit, native_arena_block_bytes
from statefulspark.rocksdb.chosen import bound_of_instance
from statefulspark.rocksdb.settings import RocksDBSettings
from statefulspark.sizes import short_size


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMemory:
    """The memory of a job's processes.

    Attributes:
        driver: The driver pod.
        executor: One executor pod.
        executors: How many executors run at the job's parallelism.
        managed_bytes: Managed memory of one slot, or what ``fixedPerSlot`` gives it instead.
        split: How RocksDB divides it; None when nothing bounds RocksDB or the backend is another one.
        arena_bytes: What a write buffer of RocksDB takes at a time.
        work: What a slot's Python process may use to sort, cache and collect changes.
        warnings: What works, but badly.
    """

    driver: ProcessMemory
    executor: ProcessMemory
    executors: int
    managed_bytes: int
    split: MemorySplit | None
    arena_bytes: int
    work: SlotWork
    warnings: tuple[str, ...]

    @property
    def total_bytes(self) -> int:
        """Memory of all pods together."""
        return self.driver.total_bytes + self.executors * self.executor.total_bytes

    def spark_conf(self) -> dict[str, str]:
        """Return Spark's memory settings; what they ask Kubernetes for is what the manifest says of each pod."""
        return self.driver.spark_conf() | self.executor.spark_conf()


def job_memory(driver: DriverSpec, executor: ExecutorSpec, backend: StateBackendSpec, parallelism: int) -> JobMemory:
    """Work out the memory of a job.

    Args:
        driver: As in the manifest.
        executor: As in the manifest.
        backend: As in the manifest.
        parallelism: Number of slots, at least 1.

    Raises:
        InvalidInputError: Parts do not fit or do not add up, or a budget is too small to work. ``field`` is relative to ``spec``.
    """
    try:
        driver_plan = plan_driver(driver.memory_request(), driver.memory_parts.python)
    except InvalidInputError as error:
        raise _within("driver", error) from None
    request = _executor_request(executor, backend)
    try:
        executor_plan = plan_executor(request)
    except InvalidInputError as error:
        raise _within("executor", error) from None
    managed_bytes = managed_bytes_per_slot(executor_plan)
    split = _split(executor, backend, managed_bytes)
    settings = choose(backend.rocksdb.predefined_options, backend.rocksdb.options).settings
    return JobMemory(
        driver=driver_plan,
        executor=executor_plan,
        executors=executor.instances_for(parallelism),
        managed_bytes=managed_bytes,
        split=split,
        arena_bytes=_arena_bytes(settings),
        work=slot_work(executor_plan),
        warnings=(
            *_tight(driver_plan, smallest_driver_bytes(driver.memory_request(), driver.memory_parts.python, tight=False)),
            *_tight(executor_plan, smallest_executor_bytes(request, tight=False)),
            *_warnings(executor, backend, split, settings),
        ),
    )


def _executor_request(executor: ExecutorSpec, backend: StateBackendSpec) -> ExecutorRequest:
    fixed_bytes = backend.rocksdb.memory.fixed_per_slot if backend.type == StateBackendType.ROCKSDB else None
    parts = executor.memory_parts
    return ExecutorRequest(
        slots=executor.slots,
        exchange_tasks=executor.exchange_tasks,
        jvm=executor.memory_request(),
        python_per_slot_bytes=parts.python_per_slot,
        python_per_exchange_task_bytes=parts.python_per_exchange_task,
        managed_bytes=fixed_bytes or executor.managed_memory.size,
        managed_fraction=executor.managed_memory.fraction,
        managed_bytes_min=MANAGED_BYTES_MIN if backend.bounded else MEBIBYTE,
    )


def _split(executor: ExecutorSpec, backend: StateBackendSpec, managed_bytes: int) -> MemorySplit | None:
    if not backend.bounded:
        return None
    memory = backend.rocksdb.memory
    try:
        return MemorySplit.of(managed_bytes, memory.write_buffer_ratio, memory.high_prio_pool_ratio)
    except InvalidInputError as error:
        if memory.fixed_per_slot is not None:
            field = "stateBackend.rocksdb.memory.fixedPerSlot"
        else:
            field = f"executor.managedMemory.{'fraction' if executor.managed_memory.fraction is not None else 'size'}"
        raise InvalidInputError(error.message, field=field, remedy=error.remedy) from None


def _arena_bytes(settings: RocksDBSettings) -> int:
    return native_arena_block_bytes(settings.write_buffer_bytes, settings.arena_block_bytes)


def _warnings(executor: ExecutorSpec, backend: StateBackendSpec, split: MemorySplit | None, settings: RocksDBSettings) -> list[str]:
    found: list[str] = []
    if backend.type not in BACKENDS:
        found.append(f"stateBackend.type {backend.type}: managed memory is room for its stores, which nothing enforces")
    elif backend.type != StateBackendType.ROCKSDB:
        found.append(
            f"stateBackend.type {backend.type} keeps state on the Python heap: managed memory is room for it that nothing enforces"
        )
    elif split is None:
        found.append(
            "stateBackend.rocksdb.memory.managed is false: nothing keeps RocksDB within its managed memory, and one instance may take"
            f" {short_size(bound_of_instance(settings))}"
        )
    else:
        found.extend(split.warnings(_arena_bytes(settings)))
        if backend.rocksdb.memory.fixed_per_slot is not None and executor.managed_memory.given:
            found.append("stateBackend.rocksdb.memory.fixedPerSlot wins over executor.managedMemory, which has no effect")
    return found


def _tight(plan: ProcessMemory, comfortable_bytes: int | None) -> list[str]:
    if not plan.tight:
        return []
    better = f": {short_size(comfortable_bytes)} and more is comfortable" if comfortable_bytes is not None else ""
    return [f"{plan.role}.memory = {short_size(plan.total_bytes)} is tight, small peaks may get the pod killed{better}"]


def _within(model: str, error: InvalidInputError) -> InvalidInputError:
    return InvalidInputError(error.message, field=f"{model}.{error.field}", remedy=error.remedy)

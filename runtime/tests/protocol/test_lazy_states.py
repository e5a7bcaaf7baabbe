"""States that are declared with some rows only, as those of windows are: every later attempt knows their ids, whatever was declared since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statefulspark import KeyedProcessFunction, MapState, MapStateDescriptor, RuntimeContext, Types
from statefulspark.state.api.names import RuntimeName
from statefulspark.testing import BATCH, CHECKPOINT, KILL_DRIVER, KILL_DRIVER_AFTER_SINK_COMMIT, KILL_SLOT, RESCALE, RETRY_BATCH, TestingJob

SCHEMA = "key STRING, state STRING"


def named(state: str) -> RuntimeName:
    """Only the runtime declares states later than in ``open``, under such names."""
    return RuntimeName(f"_window.window(TimeWindow, list, {state})")


class Lazy(KeyedProcessFunction):
    """Counts rows in the state that each row names, declared with the first such row; states differ in type, to notice a wrong one."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.context = runtime_context

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        of_text = value.state in {"b", "d"}
        descriptor = MapStateDescriptor(named(value.state), Types.STRING(), Types.STRING() if of_text else Types.LONG())
        state: MapState[Any, Any] = self.context.get_map_state(descriptor)
        count = int(state.get("n") or 0) + 1
        state.put("n", str(count) if of_text else count)
        yield value.key, f"{value.state}{count}"


@pytest.mark.parametrize(
    "restart",
    [[KILL_SLOT(0)], [KILL_DRIVER], [("x", "c"), KILL_DRIVER_AFTER_SINK_COMMIT], [("x", "c"), RETRY_BATCH], [RESCALE(2), RESCALE(1)]],
)
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_state_keeps_its_id_where_only_an_old_changelog_names_it(parallelism: int, restart: list[Any], tmp_path: Path) -> None:
    """No checkpoint names "a": it was declared after the last one, by a copy of the function that is gone. A new state must not get its id."""
    keys = ("x", "y")
    with TestingJob(Lazy(), SCHEMA, SCHEMA, key="key", parallelism=parallelism, folder=tmp_path) as job:
        steps: list[Any] = [CHECKPOINT, *((key, "a") for key in keys), BATCH]
        # A batch that does not name it, by fresh copies, and another driver after that.
        steps += [*restart, *((key, "c") for key in keys), BATCH, *restart, *((key, "c") for key in keys), BATCH, KILL_DRIVER]
        steps += [*((key, state) for key in keys for state in ("b", "d", "a", "c")), BATCH]
        output = job.run(steps)
        extra = sum(isinstance(item, tuple) for item in restart)
        assert sorted(output[-8:]) == sorted(
            (key, each) for key in keys for each in ("b1", "d1", "a2", f"c{3 + 2 * extra if key == 'x' else 3}")
        )
        assert job.state(named("a")) == {"x": {"n": 2}, "y": {"n": 2}}
        assert job.state(named("b")) == {"x": {"n": "1"}, "y": {"n": "1"}}

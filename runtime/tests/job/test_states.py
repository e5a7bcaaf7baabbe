"""The job-wide registry of states."""

from __future__ import annotations

import pytest

from statefulspark.errors import NotRestorableError
from statefulspark.job.states import StateRegistry

LONG = {"key_type": ["STRING"], "type": "LONG", "ttl_ms": None}


def test_ids_are_stable_and_never_used_again() -> None:
    registry = StateRegistry()
    first = registry.register("u", "a", "value", LONG)
    assert registry.register("u", "a", "value", LONG) == first
    assert registry.register("u", "b", "value", LONG)["state_id"] != first["state_id"]
    restored = StateRegistry()
    restored.restore(registry.all())
    assert restored.register("u", "a", "value", LONG) == first
    assert restored.register("v", "a", "value", LONG)["state_id"] == 3


@pytest.mark.parametrize(
    ("kind", "description", "said"),
    [
        ("list", LONG, "restored as value state"),
        ("value", LONG | {"type": "STRING"}, "restored with type LONG"),
        ("value", LONG | {"ttl_ms": 5}, "time-to-live"),
    ],
)
def test_a_state_that_changed_is_refused_by_name(kind: str, description: dict[str, object], said: str) -> None:
    registry = StateRegistry()
    registry.register("u", "a", "value", LONG)
    with pytest.raises(NotRestorableError, match=said) as raised:
        registry.register("u", "a", kind, description)
    assert raised.value.field == "u.a"

"""The parts of a pipeline that a stored batch or checkpoint records: the keys of its steps, and its sources in Spark's order.

Spark finds a source's offsets by its position in the plan, and a keyed step finds its state by a hash of its key columns. Both are
stored, so that a changed pipeline is either matched by identity or rejected.
"""

from __future__ import annotations

from pydantic import Field

from statefulspark.checkpoint.formats.documents import Document

EXACT = 1
"""The key hash is taken of the columns as they are, so a bigint has another one than an int. Steps from before the keys were stored."""
WIDENED = 2
"""Integers of every width are hashed as bigint."""
_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
TICKS = "statefulspark-ticks"
"""Provider of the tick sources, one per keyed step."""


def tick_label(uid: str) -> str:
    """Return the label of the tick source of a step."""
    return f"ticks of {uid!r}"


SAME_KEY = " = "
"""Between the names of the key columns of two inputs, such as ``user = id``."""


class KeyColumn(Document):
    """One column of a key."""

    name: str = Field(min_length=1)
    """The column; of two inputs both, with `SAME_KEY` between them."""
    type: str = Field(min_length=1)
    """Spark's name of the type, such as ``decimal(10,2)``."""


class StepKey(Document):
    """The key of one keyed step."""

    uid: str = Field(min_length=1, max_length=1024)
    hashing: int = Field(ge=EXACT, le=WIDENED)
    columns: tuple[KeyColumn, ...] = Field(min_length=1)

    @property
    def hashed(self) -> tuple[tuple[str, str], ...]:
        """Inputs of the hash: steps with the same value find each other's state."""
        widened = self.hashing == WIDENED
        return tuple((each.name, "bigint" if widened and each.type in _INTEGERS else each.type) for each in self.columns)

    def finds_state_of(self, stored: StepKey) -> bool:
        """True if a step with this key finds the state that a step with the key ``stored`` has left.

        A second input may come and go, so its names count only if both keys have one.
        """
        if len(self.hashed) != len(stored.hashed):
            return False
        return all(
            kind == stored_kind and (name == stored_name or name == _first(stored_name) or _first(name) == stored_name)
            for (name, kind), (stored_name, stored_kind) in zip(self.hashed, stored.hashed, strict=True)
        )

    def __str__(self) -> str:
        return f"({', '.join(f'{each.name} {each.type}' for each in self.columns)})"


def _first(name: str) -> str:
    return name.partition(SAME_KEY)[0]


class SourceId(Document):
    """One streaming source in a query's plan."""

    provider: str
    """``json``, ``kafka``, ..., or the one of ticks."""
    identity: str
    """Of a tick source the uid of its step; of others a digest of what tells where they read: a path, topics, or all options but secrets."""
    label: str
    """For messages."""
    feeds: str
    """Uid of the first keyed step that its rows reach; empty if they reach none."""
    number: int = Field(ge=0)
    """Number of Spark's folder ``sources/<number>``. Places in the plan that read the same relation share it and its offsets."""


class SparkStep(Document):
    """One of Spark's own stateful steps."""

    name: str
    """As users write it, such as ``dropDuplicates``."""
    reads: tuple[str, ...] = ()
    """The sources below it: label and beginning of the identity, sorted."""

    def __str__(self) -> str:
        return f"{self.name} over {' and '.join(self.reads)}"


class Pipeline(Document):
    """Stored with each batch and each checkpoint."""

    steps: tuple[StepKey, ...] = ()
    """Also those that the pipeline no longer has, while their state is kept."""
    sources: tuple[SourceId, ...] = ()
    """In the order of Spark's offset log."""
    spark_steps: tuple[SparkStep, ...] = ()
    """Spark's own stateful steps, from the sink back. Spark finds their state by their place among each other."""

    def step(self, uid: str) -> StepKey | None:
        """The key of a step."""
        return next((step for step in self.steps if step.uid == uid), None)

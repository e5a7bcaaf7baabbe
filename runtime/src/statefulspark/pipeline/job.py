"""Job: the object that a pipeline function receives. It collects the keyed steps while the pipeline is built, once per parallelism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from statefulspark.checkpoint.formats.pipeline import WIDENED, StepKey
from statefulspark.errors import InvalidInputError
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.pipeline.broadcast_streams import BroadcastStream
from statefulspark.pipeline.key_selectors import Key
from statefulspark.pipeline.keyed_streams import KeyedStream
from statefulspark.pipeline.outputs import WriteOutput, outputs_writer
from statefulspark.pipeline.tagged_streams import TaggedStream
from statefulspark.pipeline.tick_source import FORMAT
from statefulspark.pipeline.watermarks import Upstream, passed_on, upstream_of
from statefulspark.state.api.descriptors import MapStateDescriptor

if TYPE_CHECKING:
    from statefulspark.process.runner.function_runner import StepSpec


class Sink(Protocol):
    """A sink that stores the number of each batch and ignores batches that it has."""

    def last_batch(self) -> int:
        """Returns the highest batch that the sink has; -1 for none."""
        ...


class Job:
    """Handed to the user's ``pipeline(job)``, which builds one streaming query and returns its DataStreamWriter, not started.

    The pipeline is built again when the job is rescaled, so it must build the same query each time.
    """

    def __init__(
        self,
        *,
        spark: SparkSession,
        name: str,
        id: str = "",  # noqa: A002  the name of the property
        args: list[str],
        parallelism: int,
        max_parallelism: int,
        endpoint: Endpoint,
        hashings: Mapping[str, int],
    ) -> None:
        self._spark = spark
        self._name = name
        self._id = id or name
        self._args = args
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._endpoint = endpoint
        self._hashings = hashings
        self._steps: dict[str, StepSpec] = {}
        self._keys: dict[str, StepKey] = {}
        self._passed: dict[str, Upstream] = {}
        """The steps before the results of steps, by uid."""
        self._sinks: dict[str, Sink] = {}
        self._unwritten: dict[str, TaggedStream] = {}
        """Results of steps with side outputs, by uid, until `outputs` takes them."""

    @property
    def spark(self) -> SparkSession:
        """The session to read sources with."""
        return self._spark

    @property
    def name(self) -> str:
        """The job's name, from the manifest's ``metadata.name``."""
        return self._name

    @property
    def id(self) -> str:
        """Identifies the job's batch ids: the name of its directory in ``checkpointing.dir``, on Kubernetes the object's UID.

        Batch ids only increase in a job's directory. A sink that remembers batch ids keeps them together with this id.
        """
        return self._id

    @property
    def args(self) -> list[str]:
        """The manifest's ``spec.job.args``."""
        return self._args

    @property
    def parallelism(self) -> int:
        """Number of slots."""
        return self._parallelism

    @property
    def max_parallelism(self) -> int:
        """Number of key groups."""
        return self._max_parallelism

    @property
    def time_zone(self) -> str:
        """The session's time zone, in which Spark hands timestamps to Python."""
        return str(self._spark.conf.get("spark.sql.session.timeZone"))

    @property
    def endpoint(self) -> Endpoint:
        """Endpoint of the coordinator, for exchanges."""
        return self._endpoint

    @property
    def steps(self) -> list[StepSpec]:
        """The keyed steps of the pipeline, in the order in which it made them."""
        return list(self._steps.values())

    def tick_stream(self, uid: str) -> DataFrame:
        """The stream of a keyed step's ticks, from the source that is registered in the session."""
        return self._spark.readStream.format(FORMAT).option("uid", uid).load()

    def key_by(self, df: DataFrame, *keys: Key) -> KeyedStream:
        """Partition a streaming DataFrame by one key column or several.

        A key selector is a KeySelector or a function of one row. Spark evaluates it: it is called once, with a row whose fields are Spark's
        columns, and returns one of them, an expression of them, or a tuple. An expression is added to the rows of the
        stream as a column, under the name that Spark gives it or that of its ``alias``.

        Example::

            job.key_by(clicks, "user", "page")
            job.key_by(clicks, lambda row: (row.user, F.to_date(row.at).alias("day")))

        Args:
            df: a streaming DataFrame.
            *keys: column names or key selectors; together they are the key. Null keys make the batch fail before any state is touched.

        Raises:
            InvalidInputError: a column is missing or its type cannot be a key, or Spark cannot evaluate a key selector.
        """
        return KeyedStream(self, df, keys)

    def broadcast(self, df: DataFrame, *broadcast_state_descriptors: MapStateDescriptor) -> BroadcastStream:
        """Send every row of a small stream, such as rules, prices or settings, to every slot of the keyed step that it is connected with.

        Each row costs as much as one row per slot. The rows of a batch have at most the memory in which a slot sorts rows; the driver warns of
        more than 10,000 rows or 8 MiB. Read the stream from its source without groupBy, join or repartition, so that all slots get its
        rows in the same order.

        Example::

            limits = MapStateDescriptor("limits", Types.STRING(), Types.DOUBLE())
            checked = job.key_by(payments, "card").connect(job.broadcast(rules, limits)).process(OverLimit(), schema, uid="over-limit")

        Args:
            df: a streaming DataFrame.
            *broadcast_state_descriptors: the broadcast states that its rows may change; at least one.

        Raises:
            InvalidInputError: the DataFrame is not a stream, or a descriptor does not describe broadcast state.
        """
        return BroadcastStream(self, df, broadcast_state_descriptors)

    def outputs(self, stream: TaggedStream, /, **writers: WriteOutput | None) -> DataStreamWriter:
        """Write the outputs of a keyed step with side outputs, each with a function of its own.

        For each batch, every function is called once with ``(df, batch_id)``, ``main`` first and the others in the order of
        ``side_outputs``. ``df`` is a DataFrame, not a stream, with the rows and columns of the output. The batch has been computed and persisted by
        then, so a function may read its rows as often as it likes, or not at all. A batch that fails runs again with the
        same id and the same rows, and every function is called again, so each must ignore a batch that it has already written.

        Example::

            rejected = OutputTag("rejected", "order STRING, reason STRING")
            stream = job.key_by(orders, "order").process(Orders(), schema, uid="orders", side_outputs=[rejected])
            return job.outputs(stream, main=write_orders, rejected=write_rejected)

        Args:
            stream: what ``process(..., side_outputs=...)`` returned.
            **writers: a function per output, by its name. None discards the rows of an output.

        Returns:
            A DataStreamWriter to return from ``pipeline(job)``, with a trigger if you like.

        Raises:
            InvalidInputError: an output is missing, unknown, or written already; names it and the remedy.
        """
        if not isinstance(stream, TaggedStream):
            raise InvalidInputError(
                f"expected a stream with side outputs, got {type(stream).__name__}",
                field="outputs",
                remedy="Write it with writeStream, or pass side_outputs to process()",
            )
        if self._unwritten.get(stream.uid) is not stream:
            raise InvalidInputError(
                f"the outputs of the step {stream.uid!r} have already been written",
                field="outputs",
                remedy="Call outputs() once for each step",
            )
        writer = outputs_writer(stream, writers)
        del self._unwritten[stream.uid]
        return writer

    @property
    def keys(self) -> tuple[StepKey, ...]:
        """The keys of the keyed steps, in the same order."""
        return tuple(self._keys.values())

    def hashing(self, uid: str) -> int:
        """Hash version of a step's key: the one its stored state was written with."""
        return self._hashings.get(uid, WIDENED)

    def upstream(self, df: DataFrame) -> Upstream:
        """Return the steps that the rows of a stream come from."""
        return upstream_of(df, self._passed)

    def add_step(self, step: StepSpec, key: StepKey, inputs: Sequence[DataFrame] = ()) -> None:
        """Note a keyed step, with all its inputs if other steps may follow; called by ``KeyedStream.process``.

        Raises:
            InvalidInputError: the uid is taken.
        """
        if step.uid in self._steps:
            raise InvalidInputError(f"{step.uid!r} is used by two steps", field="uid", remedy="Give each keyed step a unique uid")
        self._steps[step.uid] = step
        self._keys[step.uid] = key
        self._passed[step.uid] = passed_on(step, map(self.upstream, inputs))

    def add_sink(self, uid: str, sink: Sink) -> None:
        """Note a sink that stores batch numbers; called by the sink.

        Raises:
            InvalidInputError: the uid is taken.
        """
        if uid in self._sinks:
            raise InvalidInputError(f"{uid!r} is used by two sinks", field="uid", remedy="Give each sink a unique uid")
        self._sinks[uid] = sink

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """Sinks that store batch numbers."""
        return tuple(self._sinks.values())

    def add_tagged_stream(self, stream: TaggedStream) -> None:
        """Note a result that `outputs` must take; called by ``KeyedStream.process``."""
        self._unwritten[stream.uid] = stream

    def check_outputs(self) -> None:
        """Raise if the pipeline has a step with side outputs whose rows go nowhere.

        Raises:
            InvalidInputError: names the step and its outputs.
        """
        for stream in self._unwritten.values():
            raise InvalidInputError(
                f"nothing consumes the outputs {', '.join(map(repr, stream.outputs))} of the step {stream.uid!r}",
                field="outputs",
                remedy="Return job.outputs(stream, main=..., ...) from the pipeline",
            )

    def pickled_steps(self) -> bytes:
        """The steps as slots get them.

        Raises:
            InvalidInputError: a function cannot be pickled.
        """
        try:
            return bytes(cloudpickle.dumps(self.steps))
        except Exception as error:
            raise InvalidInputError(
                f"{self._unpicklable()} cannot be sent to the slots: {type(error).__name__}: {error}",
                field="process",
                remedy="Open connections and files in open(), not in __init__ or at module level",
            ) from error

    def _unpicklable(self) -> str:
        """Name the step whose function cannot be pickled."""
        for step in self.steps:
            try:
                cloudpickle.dumps(step)
            except Exception:  # noqa: BLE001  whatever a function's own pickling raises
                return f"the function of the step {step.uid!r}"
        return "a function"

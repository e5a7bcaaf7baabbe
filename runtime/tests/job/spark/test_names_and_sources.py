"""The name of a query, and sources that cannot be read again, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from statefulspark.job.spark import sources, stream_writer


class Writer:
    """A DataStreamWriter with a format and perhaps a name."""

    def __init__(self, source: str, name: str | None = None) -> None:
        self.source, self.name = source, name

    def queryName(self, name: str) -> Writer:  # noqa: N802  Spark's name
        self.name = name
        return self


@pytest.mark.parametrize(
    ("source", "given", "found"),
    [("memory", "mine", "mine"), ("noop", None, "dedupe-b"), ("memory", None, "dedupe_b"), ("parquet", "n", "n")],
)
def test_a_query_keeps_the_name_that_the_pipeline_gave_it(
    monkeypatch: pytest.MonkeyPatch, source: str, given: str | None, found: str
) -> None:
    """Else it has that of the job, as far as the memory sink can make a view of it."""

    def setting(writer: Any, name: str) -> Any:
        defined = SimpleNamespace(isDefined=lambda: writer.name is not None)
        return writer.source if name == "source" else SimpleNamespace(get=lambda _: defined)

    monkeypatch.setattr(stream_writer, "writer_setting", setting)
    writer = Writer(source, given)
    stream_writer.named(cast("Any", writer), "dedupe-b")
    assert writer.name == found


def test_a_source_that_cannot_be_read_again_is_warned_of_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket source keeps nothing; files do."""
    monkeypatch.setattr(sources, "_relations", lambda plan, feeds: [("json", feeds), ("socket", feeds)])
    monkeypatch.setattr(sources, "_provider", lambda relation: relation)
    monkeypatch.setattr(sources, "options_of", lambda _: {"Host": "localhost", "port": "9999"})
    execution = SimpleNamespace(analyzed=lambda: None)
    df: Any = SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: execution))
    with capture_logs() as logs:
        sources.warn_of_passing_sources(df)
    assert [each["source"] for each in logs] == ["socket localhost:9999"]

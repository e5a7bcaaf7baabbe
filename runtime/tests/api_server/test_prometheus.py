"""What Prometheus scrapes is read back with Prometheus' own parser."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from runtime.tests.api_server.fake_job import FakeJob

from statefulspark.api_server.prometheus import exposition, families
from statefulspark.coordinator.controls import MetricSample
from statefulspark.errors import InternalError


def scrape(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(found: dict[str, Metric], family: str, **labels: str) -> float:
    matching = [sample.value for sample in found[family].samples if sample.labels == labels]
    assert len(matching) == 1, (family, labels)
    return float(matching[0])


def test_the_status_becomes_metrics(http: httpx.Client, job: FakeJob) -> None:
    """Prefix, units, HELP and TYPE; counters end in _total; an unknown watermark is absent, not zero."""
    job.trigger_checkpoint(1)
    response = http.get("/metrics")
    assert response.headers["Content-Type"].startswith("text/plain")
    found = scrape(response.text)
    assert all(name.startswith("statefulspark_") for name in found)
    assert all(family.documentation for family in found.values())
    assert value(found, "statefulspark_input_rows", job="turnaround") == 100_000
    assert found["statefulspark_input_rows"].type == "counter"
    assert 'statefulspark_input_rows_total{job="turnaround"} 100000.0' in response.text
    assert value(found, "statefulspark_job_state", job="turnaround", state="RUNNING") == 1
    assert value(found, "statefulspark_job_state", job="turnaround", state="FAILED") == 0
    assert value(found, "statefulspark_slot_key_groups", job="turnaround", slot="1") == 64
    assert value(found, "statefulspark_watermark_seconds", job="turnaround", uid="turnaround") == 1_357_041_600
    assert {sample.labels["uid"] for sample in found["statefulspark_watermark_seconds"].samples} == {"turnaround"}
    assert value(found, "statefulspark_checkpoint_duration_seconds", job="turnaround") == 0.84
    assert "statefulspark_savepoint_id" not in found


def test_the_jobs_own_samples_come_along_and_take_precedence(job: FakeJob) -> None:
    """A family that the job gives replaces the derived one as a whole."""
    job.samples = [
        MetricSample(name="state_bytes", help="Bytes of state.", kind="gauge", value=5, labels={"slot": "0"}),
        MetricSample(name="state_bytes", help="Bytes of state.", kind="gauge", value=6, labels={"slot": "1"}),
        MetricSample(name="input_rows_total", help="Rows.", kind="counter", value=1, labels={"uid": "a"}),
    ]
    found = scrape(exposition(job, now_ms=lambda: 0).decode())
    assert value(found, "statefulspark_state_bytes", slot="1") == 6
    assert value(found, "statefulspark_input_rows", uid="a") == 1
    assert len(found["statefulspark_input_rows"].samples) == 1


SAMPLE = MetricSample(name="x", help="X.", kind="gauge", value=1)


@pytest.mark.parametrize(
    "samples",
    [
        [replace(SAMPLE, name="Bad-Name")],
        [replace(SAMPLE, labels={"bad-label": "x"})],
        [SAMPLE, SAMPLE],
        [SAMPLE, replace(SAMPLE, kind="counter", labels={"a": "b"})],
    ],
)
def test_what_prometheus_would_refuse_is_refused_here(samples: list[MetricSample]) -> None:
    """A bad sample is a defect of the job, named, instead of a scrape that fails somewhere else."""
    with pytest.raises(InternalError, match=r"statefulspark_x|Bad-Name"):
        families(samples)


@given(
    st.dictionaries(st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True), st.text(max_size=20), max_size=3),
    st.floats(allow_nan=False),
    st.sampled_from(["counter", "gauge"]),
)
def test_any_label_text_survives_the_exposition(labels: dict[str, str], number: float, kind: str) -> None:
    """Quotes, line ends and backslashes in uids come back as they were."""
    job = FakeJob()
    job.samples = [MetricSample(name="own", help="Own.", kind="counter" if kind == "counter" else "gauge", value=number, labels=labels)]
    found = scrape(exposition(job, now_ms=lambda: 0).decode())
    assert value(found, "statefulspark_own", **labels) == number

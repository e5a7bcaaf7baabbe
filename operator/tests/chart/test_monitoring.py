"""Alerts and the dashboard name metrics and labels that exist, and say what a person on call needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from statefulspark.job.metrics.definitions import DEFINITIONS
from statefulspark_operator.handlers.metrics import OperatorMetrics
from statefulspark_operator.reconcile.object_cache import ObjectCache

CHART = Path(__file__).resolve().parents[3] / "charts" / "statefulspark"
DASHBOARD = CHART / "files/dashboards/statefulspark.json"
ALERTS = CHART / "files/alerts/statefulspark.yaml"
GROUPS: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
RULES = [pytest.param(rule, id=rule["alert"]) for group in GROUPS for rule in group["rules"]]


def labels_of_metrics() -> dict[str, set[str]]:
    """Labels of all metrics of jobs and of the operator, by their names in Prometheus; ``namespace`` comes with each scrape."""
    found = {
        f"statefulspark_{name}{'_total' if each.kind == 'counter' else ''}": {"namespace", "job", *each.labels}
        for name, each in DEFINITIONS.items()
    }
    operator = OperatorMetrics(ObjectCache(), queued=lambda: 0, leads=lambda: True)
    operator.reconciled(0, 0, "done")
    operator.api_request("get", "2xx", 0)
    for family in operator.registry.collect():
        found.setdefault(family.name, set())
        for sample in family.samples:
            found[sample.name] = set(sample.labels)
    per_job = {"namespace", "job", "reason"}
    return {name: per_job if name.startswith("statefulspark_operator_job_") else labels for name, labels in found.items()}


METRICS = labels_of_metrics()


def used(text: str) -> set[str]:
    """Names of metrics in a text."""
    return set(re.findall(r"\bstatefulspark_\w+", text))


def test_the_dashboard_shows_metrics_that_exist(render: Any) -> None:
    """Those of the jobs are what the driver exposes; those of the operator are in its registry. Helm changes nothing in the file."""
    (board,) = [each for each in render() if each["kind"] == "ConfigMap" and "statefulspark.json" in each["data"]]
    text = board["data"]["statefulspark.json"]
    assert text == DASHBOARD.read_text(encoding="utf-8")
    assert len(used(text)) >= 25
    assert used(text) <= METRICS.keys()


@pytest.mark.parametrize("rule", RULES)
def test_an_alert_is_about_metrics_that_exist_and_tells_what_to_do(rule: dict[str, Any]) -> None:
    """Labels of the text are those that the expression keeps."""
    names = used(rule["expr"])
    assert names
    assert names <= METRICS.keys()
    assert rule["labels"]["severity"] in {"warning", "critical"}
    kept = {label for group in re.findall(r"by \(([\w, ]+)\)", rule["expr"]) for label in group.split(", ")}
    assert kept <= set.intersection(*(METRICS[name] for name in names if "job" in METRICS[name])) if kept else True
    for text in (rule["annotations"]["summary"], rule["annotations"]["description"]):
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= kept
    assert rule["annotations"]["description"].endswith(".")


def test_alerts_have_names_of_their_own() -> None:
    """Prometheus takes a name twice, people do not."""
    names = [rule["alert"] for group in GROUPS for rule in group["rules"]]
    assert len(names) == len(set(names)) >= 12
    assert all(name.startswith("StatefulSpark") for name in names)


def test_the_chart_makes_a_rule_for_the_prometheus_operator(render: Any) -> None:
    """The same groups, and nothing where no such operator is."""
    made = [
        each
        for each in render(metrics={"prometheusRule": {"enabled": True, "labels": {"release": "x"}}})
        if each["kind"] == "PrometheusRule"
    ]
    (rule,) = made
    assert rule["spec"] == {"groups": GROUPS}
    assert rule["metadata"]["labels"]["release"] == "x"
    for enabled in (False, "auto"):
        assert not [each for each in render(metrics={"prometheusRule": {"enabled": enabled}}) if each["kind"] == "PrometheusRule"]


def test_a_scrape_keeps_the_labels_of_jobs(render: Any) -> None:
    """``job`` and ``namespace`` of a metric are the job's, not those of the target; alerts join by them."""
    (monitor,) = [each for each in render(metrics={"serviceMonitor": {"enabled": True}}) if each["kind"] == "ServiceMonitor"]
    assert monitor["spec"]["endpoints"][0]["honorLabels"] is True


def test_the_operator_tells_of_each_job() -> None:
    """Stalled jobs with their reason, restarts, and the interval to compare the age of checkpoints with; odd objects are left out."""
    status = {"restarts": 2, "conditions": [{"type": "Stalled", "status": "True", "reason": "RolledBack"}]}
    cache = ObjectCache()
    for name, content in (
        ("a", {"spec": {"checkpointing": {"interval": "1m30s"}}, "status": status}),
        ("b", {"spec": {"checkpointing": {"interval": "soon"}}}),
    ):
        metadata = {"namespace": "shop", "name": name, "uid": name, "resourceVersion": "1", "generation": 1}
        cache.on_job_event({"metadata": metadata, **content}, gone=False)
    registry = OperatorMetrics(cache, queued=lambda: 0, leads=lambda: True).registry
    job = {"namespace": "shop", "job": "a"}
    assert registry.get_sample_value("statefulspark_operator_job_stalled", {**job, "reason": "RolledBack"}) == 1
    assert registry.get_sample_value("statefulspark_operator_job_restarts", job) == 2
    assert registry.get_sample_value("statefulspark_operator_job_checkpoint_interval_seconds", job) == 90
    assert registry.get_sample_value("statefulspark_operator_job_checkpoint_interval_seconds", {**job, "job": "b"}) is None

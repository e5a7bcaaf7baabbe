"""The same alerts by comparing columns, rule by rule, and a comparison with what the job has written.

Run it from the repository's root after the job has ended: ``python examples/12-alert-rules/oracle.py``.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

Alerts = list[tuple[str, pd.Timestamp, str, str, float]]


def _spans(rules: Path) -> dict[str, list[dict[int, tuple[str, float]]]]:
    """Of each rule the spans in which it exists without a break: condition and limit by week."""
    files = sorted(rules.glob("*.json"))
    spans: dict[str, list[dict[int, tuple[str, float]]]] = {}
    current: dict[str, dict[int, tuple[str, float]]] = {}
    for week, path in enumerate(files):
        for span in current.values():
            span[week] = span[week - 1]
        for row in pd.read_json(path, lines=True).reindex(columns=["rule", "condition", "limit"]).itertuples():
            if pd.isna(row.condition):
                span = current.pop(row.rule, {})
                span.pop(week, None)
            else:
                if row.rule not in current:
                    current[row.rule] = {}
                    spans.setdefault(row.rule, []).append(current[row.rule])
                current[row.rule][week] = (row.condition, row.limit)
    return spans


def expected(weather: Path, rules: Path) -> Alerts:
    """An alert changes where an observation breaks the rule and the one before it at the airport did not, or the other way round."""
    weeks = [pd.read_parquet(path).assign(week=number) for number, path in enumerate(sorted(weather.glob("*.parquet")))]
    observations = pd.concat(weeks).sort_values("at", kind="stable")
    found: Alerts = []
    for rule, spans in _spans(rules).items():
        for span in spans:
            judged = observations[observations["week"].isin(span)]
            limits = judged["week"].map({week: limit for week, (_, limit) in span.items()})
            below = judged["week"].map({week: condition == "below" for week, (condition, _) in span.items()})
            broken = (judged["temp"] < limits).where(below, judged["temp"] > limits)
            for origin, of_airport in broken.groupby(judged["origin"], sort=False):
                changed = of_airport.to_numpy() != of_airport.shift(fill_value=False).to_numpy()
                rows = judged[judged["origin"] == origin][changed]
                alerts = ["raised" if each else "cleared" for each in of_airport[changed]]
                found += [(origin, at, rule, alert, temp) for at, alert, temp in zip(rows["at"], alerts, rows["temp"], strict=True)]
    return sorted(found)


def written(folder: Path) -> Alerts:
    """What the job has written."""
    frame = pd.read_parquet(folder)[["origin", "at", "rule", "alert", "temp"]]
    frame["at"] = pd.to_datetime(frame["at"], utc=True)
    return sorted(frame.itertuples(index=False, name=None))


if __name__ == "__main__":
    root = Path("out/alert-rules")
    alerts = written(root / "output")
    if alerts != expected(root / "weather", root / "rules"):
        raise SystemExit("the job has written something else")
    raised = [rule for _, _, rule, alert, _ in alerts if alert == "raised"]
    counts = ", ".join(f"{raised.count(rule)} of {rule!r}" for rule in sorted(set(raised)))
    print(f"{len(alerts):,} changes of alerts, all as expected; raised: {counts}")

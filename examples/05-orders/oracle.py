"""The same result, order by order, without a stream: what the job must write, and a comparison of what it has written.

Run it from the repository's root after the job has ended: ``python examples/05-orders/oracle.py``.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

DAY = pd.Timedelta(days=1)
LATE = pd.Timedelta(hours=1)
AFTER = {
    "created": ["nothing"],
    "paid": ["created"],
    "canceled": ["created"],
    "shipped": ["paid"],
    "refunded": ["paid", "returned"],
    "delivered": ["shipped"],
    "returned": ["shipped", "delivered"],
}
"""The states in which each event is allowed."""

Rows = list[tuple[object, ...]]


def expected(folder: Path) -> tuple[Rows, Rows]:
    """Transitions and illegal events of all files, each sorted."""
    events = pd.concat([pd.read_json(path, lines=True, dtype={"order": str}) for path in sorted(folder.glob("*.json"))])
    events["at"] = pd.to_datetime(events["at"], utc=True)
    end = events["at"].max() - LATE
    transitions: Rows = []
    illegal: Rows = []
    for order, history in events.sort_values("at", kind="stable").groupby("order"):
        state, created = "nothing", None
        for at, event in zip(history["at"], history["event"], strict=True):
            if state == "created" and at >= created + DAY:
                transitions.append((order, _ms(created + DAY), "created", "expired"))
                state = "expired"
            was = None if state == "nothing" else state
            if state not in AFTER[event]:
                illegal.append((order, _ms(at), was, event))
                continue
            transitions.append((order, _ms(at), was, event))
            state, created = event, at if event == "created" else created
        if state == "created" and created + DAY <= end:
            transitions.append((order, _ms(created + DAY), "created", "expired"))
    return _sorted(transitions), _sorted(illegal)


def written(folder: Path) -> tuple[Rows, Rows]:
    """The same of the two folders that the job writes."""
    transitions = pd.read_parquet(folder / "transitions")[["order", "at_ms", "was", "became"]]
    illegal = pd.read_parquet(folder / "illegal")[["order", "at", "was", "event"]]
    illegal["at"] = pd.to_datetime(illegal["at"], utc=True).map(_ms)
    return _sorted(_rows(transitions)), _sorted(_rows(illegal))


def _rows(frame: pd.DataFrame) -> Rows:
    return list(frame.itertuples(index=False, name=None))


def _sorted(rows: Rows) -> Rows:
    return sorted(rows, key=str)


def _ms(at: pd.Timestamp) -> int:
    return int(at.timestamp() * 1000)


if __name__ == "__main__":
    wanted, found = expected(Path("examples/05-orders/events")), written(Path("out/orders"))
    if found != wanted:
        raise SystemExit("the job has written something else")
    print(f"{len(found[0])} transitions and {len(found[1])} illegal events, all as expected")

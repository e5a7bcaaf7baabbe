"""The same totals, counted line by line, and a comparison with what the job has written.

Run it from the repository's root after the job has ended: ``python examples/06-access-log/oracle.py``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pandas as pd

Totals = dict[str, tuple[int, int]]


def expected(folder: Path) -> Totals:
    """Requests and bytes of each URL. A line is split at its quotes; there are exactly two in a request."""
    requests: Counter[str] = Counter()
    sent_bytes: Counter[str] = Counter()
    for path in sorted(folder.glob("*.log")):
        for line in path.read_text().splitlines():
            parts = line.split('"')
            if len(parts) != 3 or len(words := parts[1].split(" ")) != 3:
                continue
            size = parts[2].split()[1]
            requests[words[1]] += 1
            sent_bytes[words[1]] += 0 if size == "-" else int(size)
    return {url: (count, sent_bytes[url]) for url, count in requests.items()}


def written(folder: Path) -> Totals:
    """The totals of each URL in the newest batch that has it."""
    totals: Totals = {}
    for batch in sorted(folder.glob("batch=*"), key=lambda path: int(path.name.split("=")[1])):
        for part in sorted(batch.glob("*.json")):
            rows = pd.read_json(part, lines=True)
            totals |= {row.url: (row.requests, row.sent_bytes) for row in rows.itertuples()}
    return totals


if __name__ == "__main__":
    wanted, found = expected(Path("examples/06-access-log/log")), written(Path("out/access-log"))
    if found != wanted:
        raise SystemExit("the job has written something else")
    for url, (count, size) in sorted(found.items(), key=lambda each: -each[1][0]):
        print(f"{count:5} requests {size:9,} bytes  {url}")

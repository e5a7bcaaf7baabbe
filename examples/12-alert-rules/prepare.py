"""Write the rules that begin with each week, one file per week: ``python examples/12-alert-rules/prepare.py``."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

FIRST_MODIFIED_S = 1_356_998_400
"""2013-01-01 UTC. Spark's file source takes files in the order of their modification."""

Rule = dict[str, Any]

WEEKS: list[list[Rule]] = [
    [{"rule": "frost", "condition": "below", "limit": 32.0}],
    [{"rule": "frost", "condition": "below", "limit": 28.0}, {"rule": "thaw", "condition": "above", "limit": 45.0}],
    [{"rule": "frost"}, {"rule": "cold", "condition": "below", "limit": 25.0}],
    [{"rule": "frost", "condition": "below", "limit": 30.0}, {"rule": "thaw"}, {"rule": "thaw", "condition": "above", "limit": 40.0}],
]
"""Rules that are new, changed, or, without a condition, deleted with each week."""


def prepare(folder: Path) -> None:
    """Replace ``folder`` by the files of all weeks."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, rules in enumerate(WEEKS):
        path = folder / f"{number:02}.json"
        path.write_text("".join(json.dumps(rule) + "\n" for rule in rules))
        os.utime(path, (FIRST_MODIFIED_S + 60 * number,) * 2)


if __name__ == "__main__":
    prepare(Path(sys.argv[1] if len(sys.argv) > 1 else "out/alert-rules/rules"))

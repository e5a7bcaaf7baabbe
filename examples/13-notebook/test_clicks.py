# ruff: noqa: ANN201, D100, D103, S102 - a test as a newcomer writes it
import json
from pathlib import Path

from statefulspark.testing import KeyedProcessHarness


def test_clicks_are_counted_by_user():
    cells = json.loads(Path(__file__).with_name("clicks.ipynb").read_text())["cells"]
    names = {}
    for cell in cells:
        if cell["id"] in {"imports", "function"}:
            exec("".join(cell["source"]), names)
    with KeyedProcessHarness(names["Count"](), "user STRING", "user STRING, clicks BIGINT", key="user") as harness:
        harness.process_elements([("ada",), ("bob",), ("ada",)])
        assert sorted(harness.get_output()) == [("ada", 1), ("ada", 2), ("bob", 1)]

"""The chart, rendered by Helm 4 without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

CHART = Path(__file__).resolve().parents[3] / "charts" / "statefulspark"
Render = Callable[..., list[dict[str, Any]]]


def documents(rendered: dict[str, str]) -> list[dict[str, Any]]:
    """All objects of a rendered chart."""
    texts = [text for path, text in sorted(rendered.items()) if not path.endswith("NOTES.txt")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


@pytest.fixture(scope="session")
def chart() -> Iterator[helm_python.Chart]:
    """The loaded chart."""
    with helm_python.Chart.load(CHART) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def render(chart: helm_python.Chart) -> Render:
    """Render with these values as release ``demo`` in namespace ``system``."""

    def rendered(values: dict[str, Any] | None = None, **more: Any) -> list[dict[str, Any]]:
        return documents(chart.render({**(values or {}), **more}, name="demo", namespace="system"))

    return rendered

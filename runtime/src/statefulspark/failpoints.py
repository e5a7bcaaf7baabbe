"""Named points in the protocol at which a test may kill the process.

``STATEFULSPARK_FAILPOINTS`` names them, see `statefulspark.faults.kills`. Unset, a point costs one dictionary look-up; in an image,
which has no such hooks, the variable does nothing.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

_ENV = "STATEFULSPARK_FAILPOINTS"


def reach(name: str) -> None:
    """Die here if a test asked for it."""
    wanted = os.environ.get(_ENV)
    if wanted and find_spec("statefulspark.faults") is not None:
        from statefulspark.faults.kills import die_if_wanted  # noqa: PLC0415  images do not have it

        die_if_wanted(name, wanted)

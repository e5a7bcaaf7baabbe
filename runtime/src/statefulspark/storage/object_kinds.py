"""Purpose of an object, derived from its full name in a bucket, as life-cycle rules and storage classes derive it. Pure."""

from __future__ import annotations

import re
from typing import Final, Literal

Kind = Literal["checkpoint", "savepoint", "changelog", "record"]

_FOLDERS: Final[tuple[tuple[Kind, re.Pattern[str]], ...]] = (
    ("savepoint", re.compile(r"(?:^|/)savepoint-[^/]+-[0-9a-f]{12}/")),
    ("checkpoint", re.compile(r"(?:^|/)(?:chk-\d+/|shared/\d{10}-)")),
    ("changelog", re.compile(r"(?:^|/)(?:changelog|spark-state)/\d{8}/\d{12}/")),
)
"""The folders of `checkpoint.formats.paths`, wherever the store was opened: at a job's folder, or above."""


def kind_of_object(name: str) -> Kind:
    """Return the kind of the object ``name``; the deepest folder decides.

    ``record`` is everything small that is neither a file of a checkpoint or savepoint nor what a batch changed: claims of attempts, records of
    batches, the job's history.
    """
    found = [(match.start(), kind) for kind, pattern in _FOLDERS for match in pattern.finditer(name)]
    return max(found)[1] if found else "record"

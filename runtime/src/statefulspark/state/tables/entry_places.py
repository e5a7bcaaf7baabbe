"""EntryPlaces: where in a round a sweep finds the entries of its state. It tells how many expired ones are stored at the same time, and so how long a round may be."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

_PLACES: Final = 64


class EntryPlaces:
    """Counts entries by the place in the round where they lie.

    Example:
        >>> places = EntryPlaces()
        >>> places.add(0.25, 10)
        >>> places.most_at_once()
        1.0
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries = [0] * _PLACES

    def add(self, progress: float, entries: int) -> None:
        """Count more entries, or fewer if negative, which the sweep meets at ``progress``, a share of the round, 0 up to 1."""
        self._entries[int(progress * _PLACES)] += entries

    def most_at_once(self) -> float:
        """Return the greatest share of the entries that expire during a round that is stored at the same time.

        It is about a half if they are spread evenly, because the sweep is always on its way: what has expired in a place has on average waited for half
        a round. It is 1 if all are in one place, where they wait for the whole round, and also if there are none.
        """
        total = sum(self._entries)
        if not total:
            return 1.0
        # Entries expire steadily in each place. When the round begins, a place has those of the time since its visit in the round before.
        at_start = sum(entries * (1 - (place + 1) / _PLACES) for place, entries in enumerate(self._entries))
        # Each place is visited at its end, just before which most are stored. Those of the places before it have gone.
        gone = accumulate(self._entries, initial=0)
        return max(at_start + total * (place + 1) / _PLACES - before for place, before in zip(range(_PLACES), gone, strict=False)) / total

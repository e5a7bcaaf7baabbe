"""How long a round of a sweep may be: by where the entries lie."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.state.tables.entry_places import EntryPlaces
from statefulspark.state.tables.sweep_pace import SweepPace

_PLACES = 64
_TTL_MS = 1000


@given(st.dictionaries(st.integers(0, _PLACES - 1), st.integers(1, 1000), min_size=1))
def test_most_at_once_follows_from_the_visits(entries: dict[int, int]) -> None:
    """Just before each visit, a place has what has expired since its own last visit; the most of all those times counts."""
    places = EntryPlaces()
    for place, number in entries.items():
        places.add(place / _PLACES, number)
    stored = [sum(number * (((at - place - 1) % _PLACES) + 1) for place, number in entries.items()) for at in range(_PLACES)]
    assert places.most_at_once() == pytest.approx(max(stored) / _PLACES / sum(entries.values()))


def test_entries_that_have_gone_do_not_count() -> None:
    """Places are counted as the last visit found them."""
    places = EntryPlaces()
    for place in range(_PLACES):
        places.add(place / _PLACES, 10)
    assert 0.5 < places.most_at_once() < 0.52
    for place in range(1, _PLACES):
        places.add(place / _PLACES, -10)
    assert places.most_at_once() == 1
    places.add(0, -10)
    assert places.most_at_once() == 1, "nothing is known, so the round must be short"


@pytest.mark.parametrize(("most_at_once", "round_ms"), [(1.0, 450), (0.9, 500), (0.6, 750), (0.5, 900), (0.2, 900)])
def test_the_next_round_is_as_long_as_the_bound_allows(most_at_once: float, round_ms: int) -> None:
    """Expired entries are 0.45 of the live ones at most: the longest round takes 0.9 of the time to live."""
    pace = SweepPace(_TTL_MS, 64)
    assert pace.start(0) == 0
    assert pace.target(400) == 1, "nothing is known in the first round"
    pace.round_ended(400, most_at_once)
    assert pace.target(400 + round_ms) == pytest.approx(1)
    assert pace.tolerated * round_ms == pytest.approx(0.05 * _TTL_MS)
    assert pace.late(1.0) == pytest.approx(round_ms / 400)
    assert pace.idle_ms == 1200


def test_a_whole_round_that_is_due_stays_one() -> None:
    """It begins in the middle of a short round, and its other half lies in a long one."""
    pace = SweepPace(_TTL_MS, 64)
    assert pace.start(200) == 0.5
    pace.moved(10_000, 0.5)
    assert pace.lag(10_000, 0.5) == 1
    pace.round_ended(10_000, 0.5)
    assert pace.lag(10_000, 0.0) == pytest.approx(0.5)

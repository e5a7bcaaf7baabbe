"""Joining samples: nothing is lost, nothing overlaps, and the number is bounded whatever the age of the job."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from statefulspark.coordinator.history import HistorySample
from statefulspark.job.history.samples import OTHER_UIDS, SAMPLES_MAX, UID_BYTES_MAX, UIDS_MAX, Timeline, bounded_states, selected, thinned

SUMS = ("active_ms", "rows_in", "rows_out", "batches", "step_batches", "checkpoints", "failed_checkpoints", "failures")
MAXIMA = ("slots", "memory_bytes", "memory_budget_bytes", "skew")

NUMBERS = st.integers(0, 1000)
RAW = st.fixed_dictionaries(
    {"width": st.integers(1, 5000), "gap": st.sampled_from([0, 0, 0, 7_000_000]), "lag": st.none() | NUMBERS}
    | dict.fromkeys((*SUMS, *MAXIMA), NUMBERS)
    | {"parts": st.dictionaries(st.sampled_from(["input", "process", "durable"]), st.integers(0, 64).map(float), max_size=3)}
    | {"backlog": st.none() | NUMBERS}
    | {
        name: st.dictionaries(st.sampled_from(["u: a", "u: b", "v: a"]), st.integers(-64, 64).map(float), max_size=3)
        for name in ("counts", "gauges")
    }
    | {"states": st.dictionaries(st.sampled_from(["a", "b", "c"]), NUMBERS, max_size=3)}
)


def timeline_of(raw: list[dict[str, Any]]) -> list[HistorySample]:
    at, found = 1_000, []
    for each in raw:
        at += each["gap"]
        numbers = {name: each[name] for name in (*SUMS, *MAXIMA)}
        found.append(
            HistorySample(
                from_ms=at,
                to_ms=at + each["width"],
                watermark_lag_ms=each["lag"],
                parts=each["parts"],
                states=each["states"],
                counts=each["counts"],
                gauges=each["gauges"],
                backlog_rows=each["backlog"],
                backlog_files=each["lag"],
                **numbers,
            )
        )
        at += each["width"]
    return found


def assert_is_join_of(left: list[HistorySample], raw: list[HistorySample]) -> None:
    """The plain model: each sample of the result, computed at once from the raw samples within its interval."""
    position = 0
    for sample in left:
        inside = [one for one in raw[position:] if one.to_ms <= sample.to_ms]
        position += len(inside)
        assert (sample.from_ms, sample.to_ms) == (inside[0].from_ms, inside[-1].to_ms)
        for name in SUMS:
            assert getattr(sample, name) == sum(getattr(one, name) for one in inside), name
        for name in MAXIMA:
            assert getattr(sample, name) == max(getattr(one, name) for one in inside), name
        lags = [one.watermark_lag_ms for one in inside if one.watermark_lag_ms is not None]
        assert sample.watermark_lag_ms == sample.backlog_files == (max(lags) if lags else None)
        behind = [one.backlog_rows for one in inside if one.backlog_rows is not None]
        assert sample.backlog_rows == (max(behind) if behind else None)
        assert sample.counts == {name: sum(one.counts.get(name, 0) for one in inside) for one in inside for name in one.counts}
        assert sample.gauges == {
            name: max(one.gauges[name] for one in inside if name in one.gauges) for one in inside for name in one.gauges
        }
        for part in {part for one in inside for part in one.parts}:
            assert sample.parts[part] == sum(one.parts.get(part, 0) for one in inside)
        assert sample.states == {
            uid: max(one.states.get(uid, 0) for one in inside) for uid in {uid for one in inside for uid in one.states}
        }
    assert position == len(raw), "every raw sample is in exactly one"


@given(st.lists(RAW, max_size=40), st.integers(1, 12))
def test_a_timeline_equals_its_raw_samples_joined_at_once(raw: list[dict[str, Any]], most: int) -> None:
    samples = timeline_of(raw)
    timeline = Timeline(most=most)
    for sample in samples:
        timeline.add(sample)
        assert len(timeline.all()) <= most
    assert_is_join_of(list(timeline.all()), samples)


@given(st.lists(RAW, max_size=40), st.integers(1, 12))
def test_what_a_chart_gets_equals_the_raw_samples_joined_at_once(raw: list[dict[str, Any]], most: int) -> None:
    samples = timeline_of(raw)
    found = selected(samples, since_ms=0, most=most)
    assert len(found) <= most
    assert_is_join_of(found, samples)


@given(st.lists(RAW, min_size=1, max_size=20), st.integers(0, 30_000))
def test_a_chart_gets_all_that_ended_after_its_start(raw: list[dict[str, Any]], since_ms: int) -> None:
    samples = timeline_of(raw)
    assert selected(samples, since_ms=since_ms, most=100) == [one for one in samples if one.to_ms > since_ms]


def test_recent_samples_stay_fine_and_old_ones_become_coarse_evenly() -> None:
    """Of four days in samples of 5 s, no interval is wider than a twentieth of its age, and the last minutes are as they were taken."""
    width, most = 5_000, 150
    samples: list[HistorySample] = []
    for i in range(4 * 86_400 // 5 // 8):  # joined in steps, as a timeline does it, but quicker
        samples.append(HistorySample(from_ms=i * width, to_ms=(i + 1) * width, active_ms=width, rows_in=1))
        if len(samples) > 2 * most:
            samples = thinned(samples, most)
    now_ms = samples[-1].to_ms
    left = thinned(samples, most)
    assert len(left) == most
    assert all(one.to_ms - one.from_ms <= max(2 * width, (now_ms - one.from_ms) / 8) for one in left)
    assert left[-2].to_ms - left[-2].from_ms == width
    assert sum(one.rows_in for one in left) * width == now_ms


def test_the_number_is_bounded_for_good() -> None:
    timeline = Timeline()
    for i in range(SAMPLES_MAX + 50):
        timeline.add(HistorySample(from_ms=i, to_ms=i + 1, active_ms=1))
    assert len(timeline.all()) == SAMPLES_MAX
    assert timeline.end_ms == SAMPLES_MAX + 50


@given(st.dictionaries(st.text(max_size=300), st.integers(0, 1 << 50), max_size=3 * UIDS_MAX))
def test_states_are_bounded_and_their_sum_is_kept(sizes: dict[str, int]) -> None:
    """Whatever uids a job has."""
    found = bounded_states(sizes)
    assert len(found) <= UIDS_MAX
    assert sum(found.values()) == sum(sizes.values())
    assert all(len(uid.encode()) <= UID_BYTES_MAX for uid in found)
    named = sorted((size for uid, size in found.items() if uid != OTHER_UIDS), reverse=True)
    assert bounded_states(found) == found, named

"""The watermark of a step follows from the greatest event times of its inputs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from statefulspark.coordinator.batches.event_times import EventTimes, watermark_of

TIME = st.none() | st.integers(-5, 5)


@given(
    st.lists(st.tuples(TIME, TIME), max_size=8), st.tuples(st.none() | st.integers(0, 3), st.none() | st.integers(0, 3)), st.integers(0, 8)
)
def test_it_is_the_smallest_of_the_inputs_with_event_time(
    batches: list[tuple[int | None, int | None]], delays: tuple[int | None, int | None], stored_after: int
) -> None:
    """None until each of them has had a row; what was stored and read again in between makes no difference."""
    times = EventTimes()
    for number, latest in enumerate(batches):
        if number == stored_after:
            restored = EventTimes()
            restored.reached(times.of_input(0), times.of_input(1))
            assert restored == times
            times = restored
        before = times.copy()
        times.see("u", *latest)
        assert (times == before) == (before.of_input(0) == times.of_input(0) and before.of_input(1) == times.of_input(1))
    counting = [(place, delay) for place, delay in enumerate(delays) if delay is not None]
    known = [[time for batch in batches if (time := batch[place]) is not None] for place, _ in counting]
    expected = min((max(seen) - delay for seen, (_, delay) in zip(known, counting, strict=True)), default=None) if all(known) else None
    assert watermark_of(times.marks("u", delays)) == expected
    assert watermark_of(times.marks("other", delays)) is None


def test_a_step_that_loses_its_second_input_goes_on_by_the_first() -> None:
    """And one that gets a second input has no watermark until that has had a row."""
    times = EventTimes()
    times.see("u", 100, 40)
    assert watermark_of(times.marks("u", (0,))) == 100
    times = EventTimes()
    times.see("u", 100)
    assert watermark_of(times.marks("u", (0, 0))) is None

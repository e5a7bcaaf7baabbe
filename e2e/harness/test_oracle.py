"""The oracle of the end-to-end tests notices what it is there for."""

from __future__ import annotations

import dataclasses

import pytest

from e2e.harness.oracle import Written, check, pad_checksum, pause_s

KEYS, ROWS, PAD = 4, 3, 8


def right(batches: int) -> list[Written]:
    """Output of a job that nothing happened to, one batch a second."""
    counts = [0] * KEYS
    result = []
    for batch in range(batches):
        rows = []
        for number in range(batch * ROWS, (batch + 1) * ROWS):
            counts[number % KEYS] += 1
            rows.append((number, counts[number % KEYS], pad_checksum(number % KEYS, PAD), 1))
        result.append(Written(batch=batch, at_ms=batch * 1000, rows=tuple(rows)))
    return result


def with_row(written: Written, place: int, row: tuple[int, int, int, int]) -> Written:
    """The object with another row in a place."""
    rows = list(written.rows)
    rows[place] = row
    return dataclasses.replace(written, rows=tuple(rows))


def test_right_output_passes() -> None:
    """Repeated attempts and a change of the code are counted."""
    output = right(6)
    again = dataclasses.replace(output[3], at_ms=3500, rows=tuple(reversed(output[3].rows)))
    output[5] = dataclasses.replace(output[5], rows=tuple((*row[:3], 2) for row in output[5].rows))
    seen = check([*output, again], keys=KEYS, pad_bytes=PAD)
    assert (seen.batches, seen.numbers, seen.repeated, seen.codes) == (6, 18, 1, (1, 2))


def test_code_that_comes_back_is_told_from_one_that_stays() -> None:
    """Two drivers that take turns are not one upgrade."""
    output = right(6)
    output[3] = dataclasses.replace(output[3], rows=tuple((*row[:3], 2) for row in output[3].rows))
    assert check(output, keys=KEYS, pad_bytes=PAD).codes == (1, 2, 1)


def test_each_kind_of_damage_is_noticed() -> None:
    """Lost batch, lost row, doubled row, count that went back, state of another key, attempts that differ."""
    output = right(6)
    number, count, pad, code = output[4].rows[1]
    shifted = [dataclasses.replace(each, rows=tuple((row[0] + ROWS, *row[1:]) for row in each.rows)) for each in output]
    for broken, sentence in (
        ([*output[:2], *output[3:]], "never went out"),
        ([*output[:5], dataclasses.replace(output[5], rows=output[4].rows)], "more than once"),
        ([*output[:4], with_row(output[4], 1, (number, count - 1, pad, code)), output[5]], "number 4 of its key, but went out as 3"),
        ([*output[:4], with_row(output[4], 1, (number, count, pad + 1, code)), output[5]], "not what was put there"),
        ([*output, with_row(dataclasses.replace(output[4], at_ms=9000), 1, (number, count + 1, pad, code))], "other rows"),
        (shifted, "never went out"),
    ):
        with pytest.raises(AssertionError, match=sentence):
            check(broken, keys=KEYS, pad_bytes=PAD)


def test_pause_is_that_of_new_output() -> None:
    """A batch that is run again does not end a pause; one before the kill does not count."""
    output = [dataclasses.replace(each, at_ms=each.at_ms + (10_000 if each.batch >= 4 else 0)) for each in right(6)]
    again = dataclasses.replace(output[3], at_ms=12_000)
    assert pause_s([*output, again], since_ms=3_200) == 11.0
    assert pause_s([*output, again], since_ms=14_500) == 1.0
    with pytest.raises(AssertionError, match="no output"):
        pause_s(output, since_ms=20_000)

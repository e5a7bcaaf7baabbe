"""Mean: an aggregate function whose result is of another type than its values and its accumulator."""

from __future__ import annotations

from statefulspark import AggregateFunction


class Mean(AggregateFunction[int, tuple[int, int], float]):
    """From whole numbers to their mean."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]

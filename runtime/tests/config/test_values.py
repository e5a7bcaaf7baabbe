"""Sizes, durations, cores, cron lines and storage URLs: what is read, what is refused, and that writing is the inverse of reading."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from statefulspark.config.values.cores import Cores, format_cores, parse_cores
from statefulspark.config.values.cron import next_time
from statefulspark.config.values.durations import Duration, format_duration, parse_duration
from statefulspark.config.values.locations import StorageUrl
from statefulspark.config.values.sizes import ByteSize, format_size, parse_size
from statefulspark.errors import InvalidInputError

MI = 1 << 20


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("128Mi", 128 * MI),
        ("1 GiB", 1024 * MI),
        ("512m", 512 * MI),
        ("512 mb", 512 * MI),
        ("1G", 1024 * MI),
        ("1.5g", 1536 * MI),
        ("64k", 65536),
        (" 2Ti ", 2 << 40),
        ("100b", 100),
        ("100 bytes", 100),
        ("1048576Ti", 1 << 60),
    ],
)
def test_sizes_are_read_as_spark_flink_and_kubernetes_write_them(text: str, size_bytes: int) -> None:
    """All spellings mean powers of 1024."""
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "128", "Mi", "-1Mi", "1 Xi", "1e3k", "0.1b", "1Mi 2", "1,5g", "1048577Ti", "٣Mi", "9" * 40 + "k"])
def test_sizes_that_could_mean_two_things_are_refused(text: str) -> None:
    """No unit, unknown units, fractions of bytes, signs and absurd numbers."""
    with pytest.raises(InvalidInputError):
        parse_size(text)


@given(st.integers(0, 1 << 60))
def test_every_size_survives_writing_and_reading(size_bytes: int) -> None:
    """format_size is exact."""
    assert parse_size(format_size(size_bytes)) == size_bytes


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("0", 0),
        ("500ms", 500),
        ("10s", 10_000),
        ("10 s", 10_000),
        ("1 hour", 3_600_000),
        ("1h30m", 5_400_000),
        ("1h 30min", 5_400_000),
        ("2 DAYS", 172_800_000),
        ("5m", 300_000),
        ("1d2h3m4s5ms", 93_784_005),
    ],
)
def test_durations_are_read_as_flink_writes_them(text: str, duration_ms: int) -> None:
    """Single units and sums of them."""
    assert parse_duration(text) == duration_ms


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", "1.5h", "1m1h", "1s1s", "1h-", "1 fortnight", "999999999 d", "1h30"])
def test_durations_that_could_mean_two_things_are_refused(text: str) -> None:
    """No unit, unknown units, parts out of order, signs and absurd numbers."""
    with pytest.raises(InvalidInputError):
        parse_duration(text)


@given(st.integers(0, 100 * 366 * 86_400_000))
def test_every_duration_survives_writing_and_reading(duration_ms: int) -> None:
    """format_duration is exact."""
    assert parse_duration(format_duration(duration_ms)) == duration_ms


@pytest.mark.parametrize(("text", "cores"), [("2", 2.0), ("0.5", 0.5), ("500m", 0.5), ("1500m", 1.5)])
def test_cores_are_kubernetes_quantities(text: str, cores: float) -> None:
    """Whole and fractional cores and thousandths; writing is the inverse."""
    assert parse_cores(text) == cores
    assert parse_cores(format_cores(cores)) == cores


@pytest.mark.parametrize("text", ["", "m", "-1", "2 cores", "1.5m", "1e3"])
def test_other_cores_are_refused(text: str) -> None:
    """What Kubernetes would not read is not read here."""
    assert parse_cores(text) is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ByteSize, 5),
        (ByteSize, True),
        (ByteSize, None),
        (Duration, 5),
        (Duration, 0.5),
        (Duration, [1]),
        (Cores, 0),
        (Cores, "0m"),
        (Cores, True),
    ],
)
def test_yaml_values_without_unit_are_refused(kind: Any, value: object) -> None:
    """A bare number could be bytes or MiB, seconds or milliseconds; only zero needs no unit."""
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(value)


def test_yaml_zero_needs_no_unit() -> None:
    """Zero is the same in every unit."""
    assert TypeAdapter(ByteSize).validate_python(0) == 0
    assert TypeAdapter(Duration).validate_python(0) == 0


def test_values_are_written_canonically() -> None:
    """A dumped value can be validated again."""
    assert TypeAdapter(ByteSize).dump_python(128 * MI) == "128Mi"
    assert TypeAdapter(Duration).dump_python(90_000) == "1m30s"
    assert TypeAdapter(Cores).dump_python(0.5) == "500m"


@pytest.mark.parametrize(
    ("line", "after", "due"),
    [
        ("*/20 8-10,22 * jan-mar *", "2026-01-05T08:41", "2026-01-05T09:00"),
        ("0 3 * * 7", "2026-11-21T00:00", "2026-11-22T03:00"),
        ("0 3 * * 0", "2026-11-21T00:00", "2026-11-22T03:00"),
        ("30 4 31 * *", "2026-11-01T00:00", "2026-12-31T04:30"),
        ("0 0 29 2 *", "2026-11-01T00:00", "2028-02-29T00:00"),
        ("0 0 13 * fri", "2026-11-21T00:00", "2026-11-27T00:00"),
    ],
)
def test_cron_lines_say_when(line: str, after: str, due: str) -> None:
    """Steps, ranges, lists and names; Sunday is both 0 and 7; day of month and day of week are alternatives. Checked with a calendar."""
    assert next_time(line, datetime.fromisoformat(after).replace(tzinfo=UTC)) == datetime.fromisoformat(due).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "5-1 * * * *",
        "*/0 * * * *",
        "a * * * *",
        "1- * * * *",
        "*/ * * * *",
        "0 0 30 2 *",
        "* * * * * *",
    ],
)
def test_bad_cron_lines_are_refused(line: str) -> None:
    """Missing, misspelt and out-of-bounds fields."""
    with pytest.raises(InvalidInputError):
        next_time(line, datetime(2026, 11, 21, tzinfo=UTC))


@pytest.mark.parametrize(
    ("url", "kept"),
    [("file:///data/", "file:///data"), ("file:///", "file:///"), ("s3://bucket", "s3://bucket"), ("s3://bucket/a/b/", "s3://bucket/a/b")],
)
def test_storage_urls(url: str, kept: str) -> None:
    """Files and buckets, without a slash at the end."""
    assert TypeAdapter(StorageUrl).validate_python(url) == kept


@pytest.mark.parametrize(
    "url",
    [
        "/data",
        "file://data",
        "file:relative",
        "s3a://bucket/x",
        "s3://",
        "s3://B_/x",
        "s3://k:s@bucket/x",
        "s3://bucket/../x",
        "file:///data/%2e%2e/etc",
        "s3://bucket/x?y=1",
        "https://h/x",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    """Relative paths, foreign schemes, credentials and ways out of the folder."""
    with pytest.raises(ValidationError):
        TypeAdapter(StorageUrl).validate_python(url)

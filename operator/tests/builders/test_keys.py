"""What is derived for a job: the same for ever, for this job and key alone."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.errors import InvalidInputError
from statefulspark_operator.builders.keys import KEY_BYTES, OperatorKey

KEY = OperatorKey(bytes(range(KEY_BYTES)))
UID = "5d3b4f0e-0000-4000-8000-000000000001"


def values(key: OperatorKey, uid: str) -> list[str]:
    return [key.token(uid), key.spark_secret(uid), key.authority(uid).hex()]


def test_what_is_derived_does_not_change_with_the_release() -> None:
    """Drivers that run have these values; an operator that derived others could call none of them."""
    assert KEY.id == "c4de08d518858d28"
    assert (
        hashlib.sha256("\n".join(values(KEY, UID)).encode()).hexdigest()
        == "5883a18b1540fef359fe8f49af20f532a7c5214920dca94bc3e9b6b506e66b45"
    )


@given(st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES), st.text(min_size=1), st.text(min_size=1))
def test_jobs_and_keys_have_nothing_in_common(material: bytes, uid: str, other: str) -> None:
    """Neither do the values of one job, of which its driver sees two and is not to know the third."""
    key = OperatorKey(material)
    own = values(key, uid)
    assert len({*own, key.id}) == 4
    assert len(key.token(uid)) == 43
    if other != uid:
        assert not set(own) & set(values(key, other))
    if key != KEY:
        assert not {*own, key.id} & {*values(KEY, uid), KEY.id}


@pytest.mark.parametrize("material", [b"", b"short", bytes(KEY_BYTES + 1)])
def test_what_is_no_key_is_refused_and_not_shown(material: bytes) -> None:
    with pytest.raises(InvalidInputError, match="the operator's key has"):
        OperatorKey(material)
    assert "material" not in repr(KEY)

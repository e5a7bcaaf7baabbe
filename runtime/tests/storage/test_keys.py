"""The rules of keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.errors import InvalidInputError
from statefulspark.storage.keys import KEY_BYTES_MAX, PART_BYTES_MAX, TEMPORARY_PREFIX, check_folder, check_key, check_prefix


@given(st.text())
def test_accepted_keys_stay_inside(key: str) -> None:
    """Whatever is accepted has only real parts, fits, and every beginning of it is an accepted prefix."""
    try:
        check_key(key)
    except InvalidInputError:
        return
    assert all(part not in {"", ".", ".."} for part in key.split("/"))
    assert len(key.encode()) <= KEY_BYTES_MAX
    for end in range(len(key) + 1):
        check_prefix(key[:end])


@pytest.mark.parametrize(
    "key", ["a", "a/b", "..a", "a..", "...", "a b", "chk-1/_metadata", "x" * PART_BYTES_MAX, ".hidden", "p=1/q", "\u00e9"]
)
def test_usual_keys_pass(key: str) -> None:
    """Dots inside names, blanks and other letters are fine."""
    assert check_key(key) == key


def test_bounds_are_exact() -> None:
    """The longest part and key pass; one byte more does not. Bytes count, not characters."""
    check_key("\u00e9" * (PART_BYTES_MAX // 2))
    longest = ("x" * 99 + "/") * (KEY_BYTES_MAX // 100 - 1) + "x" * 100
    assert len(check_key(longest)) == KEY_BYTES_MAX
    for key in ("\u00e9" * (PART_BYTES_MAX // 2 + 1), longest + "x"):
        with pytest.raises(InvalidInputError, match="longer"):
            check_key(key)


@pytest.mark.parametrize("key", [f"{TEMPORARY_PREFIX}1", f"a/{TEMPORARY_PREFIX}/b"])
def test_names_of_unfinished_writes_are_kept(key: str) -> None:
    """An object called so would be invisible."""
    with pytest.raises(InvalidInputError, match="unfinished"):
        check_key(key)


@pytest.mark.parametrize("prefix", ["/", "a//", "../", "a/../b", "a\\"])
def test_bad_prefixes(prefix: str) -> None:
    """No key begins so."""
    with pytest.raises(InvalidInputError):
        check_prefix(prefix)


def test_folders_end_with_a_slash() -> None:
    """Or are the root."""
    assert check_folder("") == ""
    assert check_folder("a/") == "a/"
    with pytest.raises(InvalidInputError, match="slash"):
        check_folder("a")

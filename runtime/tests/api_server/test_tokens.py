"""Where the token comes from, and what counts as one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.api_server.tokens import TokenCheck, claim_token, given_token, read_token_file
from statefulspark.errors import InvalidInputError

TOKEN = "0123456789abcdef-token"


def test_value_then_file_then_random(tmp_path: Path) -> None:
    """The value wins over the file; without both it is new each time."""
    file = tmp_path / "token"
    file.write_text(TOKEN + "-of-file\n")
    environ = {"STATEFULSPARK_API_TOKEN": TOKEN, "STATEFULSPARK_API_TOKEN_FILE": str(file)}
    assert given_token(environ) == TOKEN
    assert given_token({"STATEFULSPARK_API_TOKEN_FILE": str(file)}) == TOKEN + "-of-file"
    assert given_token({}) is None
    assert claim_token({}) != claim_token({})
    assert len(claim_token({})) >= 43


def test_the_claimed_token_leaves_the_environment() -> None:
    """Spark, its Python workers and the user's code inherit the environment, and must not find it there."""
    environ = {"STATEFULSPARK_API_TOKEN": TOKEN, "PATH": "/bin"}
    assert claim_token(environ) == TOKEN
    assert environ == {"PATH": "/bin"}


@pytest.mark.parametrize("bad", ["short", "x" * 5_000, "with space in the token", "line\nbreak-in-the-token", "caf\u00e9-0123456789abcdef"])
def test_a_token_that_cannot_travel_in_a_header_is_refused(bad: str, tmp_path: Path) -> None:
    """By name of the variable or file, without its text."""
    with pytest.raises(InvalidInputError, match="STATEFULSPARK_API_TOKEN") as caught:
        given_token({"STATEFULSPARK_API_TOKEN": bad})
    assert bad not in str(caught.value)
    file = tmp_path / "token"
    file.write_text(bad)
    with pytest.raises(InvalidInputError, match="token"):
        read_token_file(file)


def test_a_missing_token_file_is_named(tmp_path: Path) -> None:
    """The path is in the text."""
    with pytest.raises(InvalidInputError, match="absent"):
        read_token_file(tmp_path / "absent")


@given(st.binary(max_size=60))
def test_only_the_token_is_accepted(header: bytes) -> None:
    """Any other bytes are refused without an exception."""
    check = TokenCheck(TOKEN)
    assert not check.accepts(header)
    assert not check.accepts(b"Bearer " + header)
    assert not check.accepts(header + b" " + TOKEN.encode()) or header.lower() == b"bearer"
    assert check.accepts(b"Bearer " + TOKEN.encode())


def test_the_check_does_not_hold_the_token() -> None:
    """A dump of the server's objects does not give it away."""
    check = TokenCheck(TOKEN)
    assert all(TOKEN not in repr(getattr(check, name)) for name in check.__slots__)

"""Secrets of the shared AWS files are hidden in the logs that the API shows, whichever profile boto3 takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from statefulspark.logs.redaction import Redaction
from statefulspark.logs.shared_credentials import environment_secrets, shared_secrets

CREDENTIALS = """[default]
aws_access_key_id = AKIAEXAMPLE
aws_secret_access_key = first%secret/0123456789
[etl]
aws_secret_access_key=second-secret-0123456789
aws_session_token = token-0123456789
"""


def test_all_profiles_of_both_files(tmp_path: Path) -> None:
    """At their places in the home directory, or where the environment says."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(CREDENTIALS)
    (tmp_path / ".aws/config").write_text("[profile x]\nregion = eu-central-1\naws_secret_access_key = third-secret-0123456789\n")
    found = shared_secrets({}, tmp_path)
    assert found == ["first%secret/0123456789", "second-secret-0123456789", "token-0123456789", "third-secret-0123456789"]
    moved = (tmp_path / ".aws/credentials").rename(tmp_path / "elsewhere")
    assert shared_secrets({"AWS_SHARED_CREDENTIALS_FILE": str(moved)}, tmp_path) == found


@pytest.mark.parametrize("content", [b"no section = 1", b"[a\nb", b"\xff\xfe", b"", b"[a]\naws_secret_access_key\n"])
def test_a_file_that_is_no_such_file_stops_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_bytes(content)
    (tmp_path / ".aws/config").mkdir()
    assert shared_secrets({}, tmp_path) == []


def test_the_variables_of_all_stores() -> None:
    """A JSON key is hidden as a whole, and so is the private key that it contains."""
    environ = {"AZURE_STORAGE_KEY": "azure-key==", "GOOGLE_CREDENTIALS": '{"private_key": "-----BEGIN\\nMII"}', "AWS_ACCESS_KEY_ID": "AKIA"}
    assert environment_secrets(environ) == ["azure-key==", environ["GOOGLE_CREDENTIALS"], "-----BEGIN\nMII"]
    for key in ("", "no JSON", "[]", "7", '{"private_key": 7}'):
        assert environment_secrets({"GOOGLE_CREDENTIALS": key}) == ([key] if key else [])


def test_a_container_is_not_a_user() -> None:
    """The URL of a checkpoint on Azure is shown whole, and a password in another URL is not."""
    redaction = Redaction()
    assert redaction.text("abfss://states@myaccount.dfs.core.windows.net/c") == "abfss://states@myaccount.dfs.core.windows.net/c"
    assert redaction.text("https://user:password@host/abfss://x") == "https://***@host/abfss://x"

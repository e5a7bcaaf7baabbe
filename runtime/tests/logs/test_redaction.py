"""Secrets of the forms in which libraries and URLs write them do not leave the process, and no text keeps redaction busy."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Iterator

import pytest

from statefulspark.api_server.run import termination
from statefulspark.coordinator.controls import JobError
from statefulspark.errors import InvalidInputError
from statefulspark.logs.json_lines import json_formatter
from statefulspark.logs.redaction import HIDDEN, Redaction, hide_secrets, redact
from statefulspark.process.runner.failures import user_function_error

KEY_ID = "AKIA" + "IOSFODNN7EXAMPLE"
SIGNATURE = "aB3dE5fG7hI9jK%2Bx%3D"


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    hide_secrets(())
    yield
    hide_secrets(())


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("cannot reach postgresql://ada:pa55word@db/x", "pa55word"),
        (f"GET https://a.blob.core.windows.net/c?include=metadata&sv=2024&sig={SIGNATURE}&se=1 failed", SIGNATURE),
        (f"https://a.blob.core.windows.net/c?sig={SIGNATURE}", SIGNATURE),
        (f"the key {KEY_ID} is refused", KEY_ID),
        ("connect(password='pa55word', user='ada')", "pa55word"),
        ("aws_secret_access_key=wJalrXUtnFEMI", "wJalrXUtnFEMI"),
        ('{"password": "pa55word"}', "pa55word"),
        ("DefaultEndpointsProtocol=https;AccountKey=Eby8vdM02xNO==;", "Eby8vdM02xNO"),
        ("fs.azure.account.key.me.dfs.core.windows.net=Eby8vdM02xNO", "Eby8vdM02xNO"),
        ("-Djavax.net.ssl.trustStorePassword=pa55word", "pa55word"),
        ('sasl.jaas.config=... password="pa55word";', "pa55word"),
        ('{"body": "{\\"password\\": \\"pa55word\\"}"}', "pa55word"),
        ("{'password': b'pa55word'}", "pa55word"),
        ("aws_secret_access_key = wJalrXUtnFEMI", "wJalrXUtnFEMI"),
        ("GET /v1/x?api_key=pa55word&y=1", "pa55word"),
        ("passphrase=pa55word", "pa55word"),
        ("DRIVER=x;UID=ada;PWD=pa55word", "pa55word"),
        ("Map(ssl.keystore.password -> pa55word, x -> y)", "pa55word"),
        ("connect(password='with space,)&;pa55word', user='ada')", "pa55word"),
        ('PlainLoginModule required password="a,b;pa55word";', "pa55word"),
        ('{"body": "{\\"password\\": \\"a b;pa55word\\"}"}', "pa55word"),
        ("Authorization: Bearer 3f2a9c8e7d", "3f2a9c8e7d"),
        ("{'Authorization': 'Basic dXNlcjpwYTU1d29yZA=='}", "dXNlcjpwYTU1d29yZA"),
        ("cookie eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3 of", "dozjgNryP4J3"),
        ("-----BEGIN RSA PRIVATE KEY-----\\nMIIEpAIBAAKCAQEA\\n-----END RSA PRIVATE KEY-----", "MIIEpAIBAAKCAQEA"),
    ],
)  # fmt: skip
def test_secrets_are_recognized_by_their_form(text: str, secret: str) -> None:
    hidden = redact(text)
    assert secret not in hidden
    assert HIDDEN in hidden


@pytest.mark.parametrize(
    "text",
    [
        "token: no API token found for URL. Set --token-file",
        "max_tokens = 4096",
        "abfss://container@account/x",
        "5 keys, key=7",
        "design=blue",
        "Basic authentication and bearer tokens are refused",
        "eyJ is how a token begins",
    ],
)
def test_ordinary_texts_stay(text: str) -> None:
    assert redact(text) == text


def test_control_characters_do_not_reach_a_terminal() -> None:
    assert redact("a\x1b[2Jb\x9bc\r\n\td\u202e") == "a\\x1b[2Jb\\x9bc\\x0d\n\td\\u202e"


@pytest.mark.parametrize(
    "piece",
    ["a.", "a", ".", "a://", "a://b", "://", "secret", "secret=", "secret='", "account.key.", "account.key.a", "token ", "sig", "AKIA", "\\", "é", "@", "a@", "s\x1b", "Bearer ", "Basic a", "basic bearer1", "eyJ", "eyJ-", "eyJ.", "eyJaaaaaaaa.", " eyJa", "-----BEGIN PRIVATE KEY-----", "PRIVATE KEY", "password\\\\", "password='a", 'password="a', "secret = ", "pwd->", "token='\""],
)  # fmt: skip
def test_time_grows_with_the_length_only(piece: str) -> None:
    """An expression that is quadratic took 6.5 s for 64 KiB of dots; this counts the processor's time of one thread."""
    text = piece * ((64 << 10) // len(piece))
    redaction = Redaction(["a secret of the job"])
    began = time.thread_time()
    redaction.text(text)
    redaction.may_change(text)
    assert time.thread_time() - began < 2


def test_an_error_of_a_function_hides_secrets_wherever_it_goes() -> None:
    """The text goes to Spark's log, the API, the job's status and the termination message."""
    url = "postgresql://ada:pa55word@db/x"
    try:
        raise ValueError(f"cannot reach {url}?sig={SIGNATURE} with {KEY_ID}")
    except ValueError as raised:
        error = user_function_error(raised, uid="count", key_group=3)
        outside = RuntimeError(str(raised))
    for text in (str(error), JobError.of(error).message, JobError.of(outside).message):
        assert "cannot reach postgresql://***@db/x" in text
        assert not any(each in text for each in ("pa55word", SIGNATURE, KEY_ID))
    message = json.loads(termination.of_error(InvalidInputError(str(error))))["error"]["message"]
    assert "in test_an_error_of_a_function" in message
    assert 'raise ValueError(f"' not in message, "source lines stay in the log"


def test_a_log_record_hides_secrets() -> None:
    hide_secrets(["the job's own secret"])
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(json_formatter())
    logger = logging.getLogger("tests.redaction")
    logger.addHandler(handler)
    try:
        raise ValueError("password='pa55word' \"quoted\" sig=abcdef")
    except ValueError:
        logger.exception("the job's own secret", extra={"token": "t0ken-of-x", "url": "s3://a:pa55word@b"})
    finally:
        logger.removeHandler(handler)
    record = json.loads(stream.getvalue())
    assert record["event"] == record["token"] == HIDDEN
    assert record["url"] == "s3://***@b"
    assert "pa55word" not in stream.getvalue()
    assert "abcdef" not in record["exception"].splitlines()[-1]


def test_a_long_error_is_cut_in_the_middle() -> None:
    text = JobError.of(InvalidInputError("first " + "x" * 1_000_000 + " last")).message
    assert len(text) < 70_000
    assert text.startswith("first ")
    assert text.endswith(" last")


def test_a_sas_token_of_the_environment_is_hidden_within_other_parameters() -> None:
    """Its variable may begin with a question mark; in the URL of a traceback, other parameters do."""
    hide_secrets(["?sv=2024-11-04&ss=b&srt=sco&sp=rwl"])
    assert (
        redact("GET https://a/c?include=metadata&sv=2024-11-04&ss=b&srt=sco&sp=rwl failed") == "GET https://a/c?include=metadata&*** failed"
    )

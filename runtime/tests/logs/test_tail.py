"""The last log records in memory: bounded, filtered, and without our own secrets however they are logged."""

from __future__ import annotations

import json
import logging
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.logs.json_lines import route_to_logging
from statefulspark.logs.redaction import Redaction
from statefulspark.logs.tail import LogTail, TailRecord

pytestmark = pytest.mark.usefixtures("logging_as_before")

TOKEN = "not/a+real-token=" + "0123456789abcdef"
KEY = 'quo"te\\and/plus+' + "0123456789abcdef"


def logger(tail: LogTail) -> logging.Logger:
    root = logging.getLogger()
    root.handlers = [tail]
    root.setLevel(logging.DEBUG)
    route_to_logging()
    return logging.getLogger("shop")


def everything(tail: LogTail) -> list[TailRecord]:
    return tail.read(after=0, most=10_000, level=0, slot=None, uid=None)[0]


def test_the_newest_records_within_both_limits_are_kept() -> None:
    """Numbers count on, so a reader sees what it has missed."""
    tail = LogTail(records_max=10)
    log = logger(tail)
    for i in range(25):
        log.info("record %d", i)
    assert [one.facts["event"] for one in everything(tail)] == [f"record {i}" for i in range(15, 25)]
    assert [one.number for one in everything(tail)] == list(range(16, 26))
    small = LogTail(bytes_max=4_000)
    log = logger(small)
    for _ in range(100):
        log.info("x" * 900)
    assert 1 <= len(everything(small)) <= 4
    assert sum(len(json.dumps(one.facts)) for one in everything(small)) <= 4_000
    log.info("x" * 30_000)
    assert everything(small) == [], "one that is too large is not kept, nor what was before"


def test_a_reader_gets_what_it_asks_for() -> None:
    """The newest ones of those that fit, and the number after which to ask again, whether any fit or not."""
    tail = LogTail()
    log = logger(tail)
    for i in range(30):
        log.log((10, 20, 30)[i % 3], "r%d", i, extra={"slot": i % 2, "uid": "ab"[i % 5 == 0]})

    def events(after: int = 0, most: int = 100, level: int = 0, slot: int | None = None, uid: str | None = None) -> list[int]:
        found, last = tail.read(after=after, most=most, level=level, slot=slot, uid=uid)
        assert last == 30
        return [int(one.facts["event"][1:]) for one in found]

    assert events() == list(range(30))
    assert events(after=27) == [27, 28, 29]
    assert events(after=30) == []
    assert events(most=2, level=30) == [26, 29]
    assert events(slot=1, level=20) == [i for i in range(30) if i % 2 == 1 and i % 3 > 0]
    assert events(uid="b", slot=0) == [0, 10, 20]


def test_our_secrets_are_not_shown_however_they_are_logged() -> None:
    """In messages, arguments, facts, nested facts, tracebacks and URLs; plain, quoted and within JSON. What else is logged stays."""
    tail = LogTail(Redaction([TOKEN, KEY, "short"]))
    log = logger(tail)
    for secret in (TOKEN, KEY):
        log.info("it is %s", secret)
        log.info("in a URL: http://host/?t=%s", quote(secret, safe=""))
        log.info("in JSON: %s", json.dumps({"key": secret}))
        log.info("fact", extra={"header": f"Bearer {secret}", "nested": {"list": [secret]}, secret: 1})
        try:
            raise ValueError(secret)
        except ValueError:
            log.exception("it failed")
    log.info("s3://me:pass-word@bucket/a and https://tok@host:80/x, but user@example.com and a short:word@ stay")
    shown = json.dumps([one.facts for one in everything(tail)])
    for secret in (TOKEN, KEY):
        for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1], json.dumps(json.dumps(secret))[1:-1]):
            assert form not in shown
        assert secret[-16:] not in shown, "nor a part of it"
    last = everything(tail)[-1].facts["event"]
    assert last == "s3://***@bucket/a and https://***@host:80/x, but user@example.com and a short:word@ stay"
    assert len(everything(tail)) == 11


SECRETS = st.text(st.sampled_from('ab"\\/ +:@\n\u00e9\U0001f600'), min_size=8, max_size=10)


@given(st.data())
def test_a_record_is_taken_apart_whenever_something_in_it_must_be_hidden(data: st.DataObject) -> None:
    """The quick look at its JSON may be wrong in one direction only. Secrets stand in texts, in names, in URLs, and in JSON within a text."""
    secret = data.draw(SECRETS)
    redaction = Redaction([secret])
    forms = st.sampled_from([secret, quote(secret, safe=""), json.dumps(secret), f"s3://u:{secret}@h", "s3://\u00e9@h", "://", "@"])
    text = st.lists(forms | st.text(st.sampled_from('ab"\\/ :@\n\u00e9'), max_size=4), max_size=4).map("".join)
    facts = data.draw(st.dictionaries(text, text | st.lists(text, max_size=2), max_size=3))
    if redaction.facts(facts) != facts:
        assert redaction.may_change(json.dumps(facts))

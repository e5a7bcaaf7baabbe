"""The status page: strict about what it runs, deaf to what a hostile job says, and usable by keyboard and on a phone."""

from __future__ import annotations

import base64
import hashlib
import logging
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from runtime.tests.api_server.chromium import Chromium, program
from runtime.tests.api_server.conftest import TOKEN
from runtime.tests.api_server.fake_job import FakeJob
from runtime.tests.api_server.page_data import MARKUP, eventful, logged, record, stored
from runtime.tests.checkpoint.sized import checkpoint_of

from statefulspark.api_server.pages import status_page, stored_page
from statefulspark.coordinator.controls import JobError, JobFailing, JobState
from statefulspark.coordinator.ongoing_work import PendingSnapshot, SlotRestoring
from statefulspark.coordinator.reported_metrics import SourceStatus, UserMetricStatus
from statefulspark.errors import UnavailableError
from statefulspark.job.metrics.sources import lag_of
from statefulspark.logs.tail import LogTail

SHOWN = "document.querySelectorAll('figure svg').length >= 10 && document.getElementById('events').children.length > 0"


def test_the_policy_admits_just_the_script_and_style_of_the_page(anonymous: httpx.Client) -> None:
    """Of the page as it is sent, also with a refusal; nothing is admitted because it stands in the page."""
    response = anonymous.get("/", headers={"Accept": "text/html"})
    assert response.status_code == 401
    policy = response.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        (part,) = re.findall(rf"<{tag}>(.*?)</{tag}>", response.text, flags=re.DOTALL)
        assert len(part) > 1000, "the placeholder was filled"
        assert f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'" in policy
    assert not re.search(r"<[^>]+\s(style|on\w+)=", response.text.split("<script>")[0]), "the policy would refuse these"


def test_the_script_never_makes_markup_of_text() -> None:
    """A job's names and errors reach the document as text nodes and attributes only."""
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|eval\(|Function\(", status_page()
    )
    assert not re.search(r"setAttribute\(\"(on|href|style|src)", status_page())


def test_another_site_gets_neither_data_nor_a_command_through_the_browser(
    http: httpx.Client, anonymous: httpx.Client, job: FakeJob
) -> None:
    """A browser sends no token by itself (there is no cookie), and no answer allows another origin to read it or to send the header."""
    elsewhere = {
        "Origin": "https://elsewhere.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    assert anonymous.options("/v1/savepoints", headers=elsewhere).status_code == 401
    for response in (
        anonymous.post("/v1/stop", headers=elsewhere),
        http.get("/v1/history", headers=elsewhere),
        http.get("/", headers=elsewhere),
    ):
        assert not [name for name in response.headers if name.startswith("access-control") or name == "set-cookie"]
    assert job.calls == []


def test_the_history_is_bounded_by_the_request(http: httpx.Client, job: FakeJob) -> None:
    """And needs the token, as everything does."""
    now_ms = 1_790_010_800_000
    eventful(job, now_ms=now_ms)
    whole = http.get("/v1/history").json()
    assert len(whole["samples"]) == 600
    assert len(whole["snapshots"]) == 180
    assert sum(one["rows_in"] for one in whole["samples"]) == sum(one.rows_in for one in job.past.samples)
    few = http.get("/v1/history", params={"samples": 7}).json()["samples"]
    assert len(few) <= 7
    assert sum(one["rows_in"] for one in few) == sum(one["rows_in"] for one in whole["samples"])
    late = http.get("/v1/history", params={"since_ms": now_ms - 600_000}).json()
    assert late["samples"] == [one for one in whole["samples"] if one["to_ms"] > now_ms - 600_000]
    assert len(late["snapshots"]) == 9
    assert late["events"] == []
    for wrong in ({"samples": 0}, {"samples": 601}, {"since_ms": -1}, {"samples": "many"}):
        assert http.get("/v1/history", params=wrong).status_code == 422, wrong
    assert httpx.get(f"{http.base_url}/v1/history", trust_env=False).status_code == 401


@pytest.fixture
def browser() -> Iterator[Chromium]:
    path = program()
    if path is None:
        pytest.skip("no Chromium on this machine; Debian has it as chromium-headless-shell")
    with Chromium(path) as found:
        yield found


def test_what_a_hostile_job_says_is_text(browser: Chromium, url: str, job: FakeJob) -> None:
    """Its name, uids, errors, paths and hosts are markup that would rename the document, had any of it become an element."""
    eventful(job, now_ms=int(time.time() * 1000), uid=MARKUP, message=f"{MARKUP}\nTraceback\n{MARKUP}")
    failing = JobFailing(failures=2, since_ms=1, error=JobError(reason=MARKUP, message=MARKUP))
    sources = (SourceStatus(description=MARKUP, input_rows=1, metrics={MARKUP: 1.0}),)
    metrics = {MARKUP: (UserMetricStatus(name=MARKUP, kind="gauge", value=1.0, min=1.0, max=1.0, slots={0: 1.0}),)}
    job.change(sources=sources, user_metrics=metrics)
    job.change(name=MARKUP, failing=failing, error=JobError(reason=MARKUP, message=MARKUP))
    job.failures["trigger_savepoint"] = UnavailableError(MARKUP)
    browser.open(f"{url}/#token={TOKEN}")
    browser.wait(SHOWN)
    browser.run("document.getElementById('savepoint').click(); document.getElementById('confirm-yes').click()")
    browser.wait(f"document.getElementById('action').textContent.includes({MARKUP!r})")
    assert browser.run("document.querySelectorAll('img, script').length") == 1, "the page's own script"
    assert browser.run("document.title").startswith(MARKUP), "the name, and nobody renamed it"
    places = "['name', 'error', 'notes', 'charts', 'map', 'skew', 'watermarks', 'sources', 'user', 'user-charts', 'events', 'action']"
    assert browser.run(f"{places}.filter(id => !document.getElementById(id).textContent.includes({MARKUP!r}))") == []
    assert browser.violations == []


def test_the_page_of_a_job_that_has_ended_needs_no_driver(browser: Chromium, job: FakeJob, tail: LogTail, tmp_path: Path) -> None:
    """A file with its error, its past and its last log records; whatever these say is text."""
    eventful(job, now_ms=1_790_000_000_000, uid=MARKUP, message=MARKUP)
    logged(tail)
    record(tail, logging.ERROR, MARKUP)
    page = tmp_path / "page.html"
    page.write_text(stored_page(stored(job, tail, name=MARKUP, error=MARKUP)))
    browser.open(page.as_uri())
    browser.wait("document.body && " + SHOWN)
    assert browser.run("document.getElementById('state').textContent") == "FAILED"
    text = browser.run("document.getElementById('page').innerText")
    for part in (
        "ended 2026-09-21 14:13:20 UTC",
        "UserFunction: " + MARKUP,
        "Fix the function",
        "State: s3://state/turnaround",
        "carrier ZZ is not known",
    ):
        assert part in text, part
    assert "Savepoint…" not in text
    assert "Key-group skew" not in text
    assert browser.run("document.title").startswith(MARKUP)
    assert browser.run("document.querySelectorAll('img').length") == 0
    browser.run("document.getElementById('range').value = '900000'; document.getElementById('range').dispatchEvent(new Event('change'))")
    assert "2026-09-21 14:13:20" in browser.run("document.querySelector('#charts svg').getAttribute('aria-label')")
    assert browser.violations == []


def test_commands_are_confirmed_sent_once_and_followed(browser: Chromium, url: str, job: FakeJob) -> None:
    """By keyboard: Escape sends nothing, Enter in the dialog does; the outcome is told in a live region."""
    browser.open(f"{url}/#token={TOKEN}")
    browser.wait(SHOWN)
    assert browser.run("location.hash") == "", "the token has left the address bar"
    browser.run("document.getElementById('rescale').focus()")
    browser.press("Enter")
    browser.wait("document.getElementById('confirm').open")
    browser.press("Escape")
    browser.wait("!document.getElementById('confirm').open")
    assert job.calls == []
    browser.press("Enter")
    browser.wait("document.getElementById('confirm').open")
    browser.run(f"{_wanted(3)}; document.getElementById('parallelism').focus()")
    browser.wait("!document.getElementById('confirm-yes').disabled")
    browser.press("Enter")
    browser.wait("document.getElementById('action').textContent === 'Rescale the job: rescaled to 3 slots'")
    assert job.calls == [("rescale", 3, 600.0)]
    browser.run(
        "document.getElementById('stop').click(); document.getElementById('how').value = 'savepoint'; document.getElementById('confirm-yes').click()"
    )
    browser.wait("document.getElementById('action').textContent.includes('stopped; state: file:///state/turnaround/savepoint-1')")
    assert job.calls[1:] == [("stop", True, None, False, 600.0)]
    browser.wait("document.getElementById('savepoint').disabled", 20)
    assert browser.run("document.getElementById('action').getAttribute('role')") == "status"
    assert browser.violations == []


def _wanted(slots: int) -> str:
    """JavaScript that writes a number of slots as a person does."""
    return f"document.getElementById('parallelism').value = '{slots}'; document.getElementById('parallelism').dispatchEvent(new Event('input'))"


def test_a_rescale_shows_what_it_does_before_it_acts(browser: Chromium, url: str, job: FakeJob) -> None:
    """Key groups and bytes of the number in the field, as the command line says them; until then nobody can confirm it."""
    job.base = checkpoint_of(128, [1 << 30, 3 << 30])
    plan, yes = "document.getElementById('plan').textContent", "document.getElementById('confirm-yes')"
    browser.open(f"{url}/#token={TOKEN}")
    browser.wait(SHOWN)
    browser.run("document.getElementById('rescale').click()")
    browser.wait(f"{plan} === 'The job already runs with 2 slots.'")
    assert browser.run("document.getElementById('plan-slots').hidden")
    assert browser.run(f"{_wanted(4)}; {_wanted(3)}; {yes}.disabled"), "the answer is not there yet"
    browser.wait(f"!{yes}.disabled")
    assert browser.run(plan) == (
        "63 of 128 key groups change slot; slots fetch 8.0 GiB, delete about 3.3 GiB and copy about 336.0 MiB of it (checkpoint 7)."
    )
    cells = "[...document.querySelectorAll('#plan-table tr')].slice(1).map(row => [...row.cells].map(cell => cell.textContent))"
    assert browser.run(cells) == [
        ["0", "0-42", "slot 0", "1.0 GiB", "21: 336.0 MiB", "-"],
        ["1", "43-85", "slot 1", "4.0 GiB", "42: 2.0 GiB", "21: 336.0 MiB"],
        ["2", "86-127", "slot 1", "3.0 GiB", "22: 1.0 GiB", "-"],
    ]
    assert browser.run("document.getElementById('plan').getAttribute('role')") == "status"
    browser.run(_wanted(1000))
    assert browser.run("document.getElementById('plan').hidden"), "a plan of another number would mislead"
    browser.run(f"{yes}.click()")
    assert browser.run("document.getElementById('confirm').open"), "the field refuses the number"
    job.base = None
    browser.run(_wanted(3))
    browser.wait(f"{plan}.endsWith('their size is not known before the first checkpoint.')")
    job.failures["rescale_plan"] = UnavailableError("storage does not answer")
    browser.run(_wanted(4))
    browser.wait(f"{plan} === 'What it does is not known: storage does not answer' && !{yes}.disabled")
    assert job.calls == []
    browser.run("document.getElementById('confirm-no').click(); document.getElementById('stop').click()")
    assert browser.run("document.getElementById('plan').hidden && document.getElementById('plan-slots').hidden")
    assert browser.violations == []


def test_a_restore_and_a_savepoint_show_how_far_they_are(browser: Chromium, url: str, job: FakeJob) -> None:
    """In the table of slots, in the list of problems, which is a live region, and in the summary."""
    eventful(job, now_ms=int(time.time() * 1000))
    restoring = SlotRestoring(downloaded_bytes=1_288_490_189, total_bytes=4 << 30)
    slots = tuple(replace(slot, state="RESTORING", restoring=restoring) if slot.slot == 3 else slot for slot in job.status().slots)
    pending = PendingSnapshot(id=7, kind="savepoint", started_ms=1, slots_done=1, slots=4, uploaded_bytes=3 << 29, total_bytes=4 << 30)
    job.change(slots=slots, pending_snapshot=pending)
    browser.open(f"{url}/#token={TOKEN}")
    browser.wait(SHOWN)
    assert "RESTORING (1.2 GiB of 4.0 GiB)" in browser.run("document.getElementById('slots').textContent")
    assert "Slot 3 is restoring (1.2 GiB of 4.0 GiB): its key groups wait." in browser.run("document.getElementById('notes').textContent")
    assert "1 of 4, 1.5 GiB of 4.0 GiBsavepoint 7 (slots done)" in browser.run("document.getElementById('facts').textContent")
    assert browser.violations == []


def test_on_a_phone_what_is_cut_can_be_scrolled_by_keyboard_and_nothing_is_announced_again_and_again(
    browser: Chromium, url: str, job: FakeJob
) -> None:
    """Only the tables that do not fit are stops of the Tab key; the time of the last answer is no live region, a driver that is gone is."""
    eventful(job, now_ms=int(time.time() * 1000))
    browser.open(f"{url}/#token={TOKEN}", width=390)
    browser.wait(SHOWN)
    browser.run("document.querySelector('details').open = true")
    stops = "[...document.querySelectorAll('.scroll')].filter(box => box.tabIndex === 0 && box.getAttribute('aria-label')).length"
    wide = "[...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight).length"
    browser.wait(f"{wide} > 4 && {stops} === {wide}")
    assert browser.run("document.documentElement.scrollWidth") == 390, "the page itself is never wider than the screen"
    assert browser.run("document.getElementById('fresh').ariaLive") == "off"
    browser.run("window.kept = document.querySelector('#notes li'); 1")
    browser.run("refresh().then(() => 1)")
    assert browser.run("window.kept === document.querySelector('#notes li')"), "the list of problems is written only when it changes"
    job.failures["status"] = UnavailableError("gone")
    browser.wait("document.getElementById('fresh').ariaLive === 'polite'")
    assert browser.run("document.getElementById('fresh').textContent").startswith("the driver does not answer")


def test_a_driver_that_is_gone_is_grey(browser: Chromium, url: str, job: FakeJob) -> None:
    """It neither looks as if it ran, nor takes commands; what is shown says from when it is. A driver that answers again is shown as before."""
    eventful(job, now_ms=int(time.time() * 1000))
    browser.open(f"{url}/#token={TOKEN}")
    browser.wait(SHOWN)
    job.failures["status"] = UnavailableError("gone")
    browser.wait("document.getElementById('state').textContent === 'UNREACHABLE'")
    assert re.fullmatch(r"last seen \d\d:\d\d:\d\d UTC", browser.run("document.getElementById('since').textContent"))
    assert browser.run("['savepoint', 'rescale', 'stop'].every(id => document.getElementById(id).disabled)")
    assert browser.run("getComputedStyle(document.getElementById('facts')).opacity") == "0.45"
    assert browser.run("document.querySelector('#state.good')") is None
    assert browser.run("document.title") == "turnaround - unreachable"
    del job.failures["status"]
    browser.wait("document.getElementById('state').textContent === 'RUNNING' && !document.getElementById('stop').disabled")
    assert browser.run("getComputedStyle(document.getElementById('facts')).opacity") == "1"
    assert browser.violations == []


def test_the_first_sentence_says_how_the_job_is(browser: Chromium, url: str, job: FakeJob) -> None:
    """Says if it keeps up with its sources, by their rows and not those of its steps, and names the cause if not."""
    eventful(job, now_ms=int(time.time() * 1000))
    kafka = SourceStatus(description="KafkaV2[Subscribe[flights]]", input_rows=6_000, input_rows_per_second=3_000.0, backlog_rows=1_200)

    def behind(rows: int, **fields: object) -> None:
        sources = (replace(kafka, backlog_rows=rows),)
        job.change(sources=sources, lag=lag_of(sources, None), **fields)

    def says(text: str) -> None:
        browser.wait(f"document.getElementById('headline').textContent.startsWith({text!r})")

    behind(1_200)
    browser.open(f"{url}/#token={TOKEN}")
    browser.wait(SHOWN)
    says("keeping up: 1200 rows, 400 ms of input to read")
    pipeline = browser.run("[...document.querySelectorAll('#pipeline .group')].map(group => group.innerText.split('\\n')[1])")
    assert pipeline == ["flights (Kafka)", "turnaround", "rows of all steps"]
    facts = browser.run("document.getElementById('facts').innerText")
    assert "1,200\nrows behind the sources" in facts
    assert "3000\nrows per second from the sources" in facts
    browser.wait("document.getElementById('facts').innerText.includes('last checkpoint, every 1 min 0 s')")
    behind(0)
    says("keeping up: all input is read")
    behind(184_000)
    says("falling behind: 184 k rows, 1 min 1 s of input to read, growing by ")
    slots = tuple(replace(slot, state="RESTORING") if slot.slot == 3 else slot for slot in job.status().slots)
    job.change(slots=slots)
    says("waiting for slot 3, which is restoring")
    job.change(failing=JobFailing(failures=2, since_ms=0, error=JobError(reason="UserFunction", message="no\nTraceback")))
    says("failing since 00:00:00 UTC: UserFunction: no")
    job.change(error=JobError(reason="UserFunction", message="no"), state=JobState.FAILED)
    says("failed: UserFunction: no")
    assert browser.violations == []


def test_what_sources_and_functions_report_is_shown(browser: Chromium, url: str, job: FakeJob) -> None:
    """With the values of slots, and over time; a source that does not report how far it is behind is said to."""
    eventful(job, now_ms=int(time.time() * 1000))
    job.change(user_metrics_left_out=1234)
    browser.open(f"{url}/#token={TOKEN}")
    browser.wait(SHOWN)

    def rows(table: str) -> Any:
        cells = "[...row.cells].map(cell => cell.textContent)"
        return browser.run(f"[...document.querySelectorAll('#{table} tr')].slice(1).map(row => {cells})")

    kafka, files = rows("sources")
    assert kafka[:5] == ["flights (Kafka)", "61,204", "22 k", "25 k", "184,220 rows"]
    assert kafka[5] == "flights 2: 51,873, flights 0: 46,124"
    assert kafka[6].startswith("avgOffsetsBehindLatest 46,055, ")
    assert files[0] == "s3://input/carriers (files)"
    assert files[4] == "unknown: not reported by this source"
    assert [row[1:] for row in rows("user")] == [
        ["cancelled", "counter", "1,289", "0: 340, 1: 301, 2: 322, 3: 326"],
        ["delay_minutes", "distribution", "470,021 values, mean 12.66, -43 to 1,301", ""],
        ["open_legs", "gauge", "498 to 571", "0: 571, 1: 498, 2: 530, 3: 541"],
    ]
    assert browser.run("document.getElementById('user-rest').textContent") == "1,234 further metrics are in /metrics."
    titles = browser.run("[...document.querySelectorAll('#user-charts figcaption b')].map(title => title.textContent)")
    assert titles == [
        "Backlog of the sources: rows", "turnaround: cancelled, per second", "turnaround: delay_minutes, mean", "turnaround: open_legs, greatest over slots"
    ]  # fmt: skip
    mean = browser.run("document.querySelectorAll('#user-charts svg')[2].getAttribute('aria-label')")
    assert re.search(r"Latest: .* UTC: 9\.7\. The arrow", mean), mean
    job.change(sources=(), user_metrics={}, user_metrics_left_out=0)
    browser.wait("document.getElementById('sources').textContent.includes('No batch has run yet.')")
    assert "No function has registered a metric" in browser.run("document.getElementById('user').textContent")
    assert browser.violations == []


def test_the_log_is_text_and_follows_its_end(browser: Chromium, url: str, tail: LogTail) -> None:
    """From the chosen level on, bounded, with stack traces folded up; what functions log is never markup."""
    lines = "[...document.querySelectorAll('#log > div')].map(line => line.textContent)"
    browser.open(f"{url}/#token={TOKEN}")
    browser.wait(SHOWN)
    browser.wait("document.getElementById('log').textContent === 'No records of this level yet.'")
    logged(tail)
    browser.wait(f"{lines}.length === 4")
    shown = browser.run(lines)
    assert shown[1] == "14:13:20 WARNING [slot 1, key group 99, uid turnaround] carrier ZZ is not known logger=flights".removesuffix(
        " logger=flights"
    )
    assert "invalid literal" in shown[2]
    assert not browser.run("document.querySelector('#log details').open")
    record(tail, logging.ERROR, MARKUP, uid=MARKUP, exception=MARKUP, **{MARKUP: MARKUP})
    browser.wait(f"{lines}.length === 5")
    assert browser.run("document.querySelectorAll('img, script').length") == 1, "the page's own script"
    browser.run(
        "document.getElementById('log-level').value = 'debug'; document.getElementById('log-level').dispatchEvent(new Event('change'))"
    )
    browser.wait(f"{lines}.length === 6 && {lines}.some(line => line.includes('dep_delay was NA'))")
    for number in range(700):
        record(tail, logging.INFO, f"line {number}")
    browser.wait(f"{lines}.length === 500 && {lines}.at(-1).includes('line 699')")
    at_end = "(log => log.scrollHeight - log.scrollTop - log.clientHeight < 8)(document.getElementById('log'))"
    assert browser.run(at_end)
    browser.run("document.getElementById('log').focus(); document.getElementById('log').scrollTop = 0")
    record(tail, logging.INFO, "one more")
    browser.wait(f"{lines}.at(-1).includes('one more')")
    assert not browser.run(at_end), "who reads earlier lines is not moved"
    assert browser.violations == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_all_without_scrolling_sideways(browser: Chromium, url: str, job: FakeJob, dark: bool) -> None:
    """At 390 pixels, in both color schemes; each chart has a name and reads its values with the arrow keys."""
    eventful(job, now_ms=int(time.time() * 1000))
    browser.open(f"{url}/#token={TOKEN}", width=390, dark=dark)
    browser.wait(SHOWN)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    ink, paper = (
        browser.run(f"getComputedStyle(document.querySelector('{place}')).{what}")
        for place, what in (("body", "color"), ("html", "colorScheme"))
    )
    assert paper == "light dark"
    assert (ink == "rgb(255, 255, 255)") == dark
    labels = browser.run("[...document.querySelectorAll('figure svg')].map(chart => chart.getAttribute('aria-label'))")
    assert len(set(labels)) == 14
    assert all("Latest: " in label for label in labels), labels
    browser.run("document.querySelector('figure svg').focus()")
    browser.press("ArrowLeft")
    first = browser.wait("document.getElementById('reading').textContent")
    assert re.fullmatch(r"Rows per second, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: rows in [\d.]+( k)?, rows out [\d.]+( k)?", first), first
    browser.press("ArrowLeft")
    assert browser.wait(f"document.getElementById('reading').textContent !== {first!r}")
    assert re.search(r"as of \d\d:\d\d:\d\d UTC$", browser.run("document.getElementById('fresh').textContent"))
    assert browser.violations == []

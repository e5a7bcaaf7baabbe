"""``statefulspark ui`` opens the status page signed in, and shows the token to nobody else."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtime.tests.api_server.conftest import TOKEN
from typer.testing import CliRunner, Result

from statefulspark.api_server.pages import status_page
from statefulspark.api_server.run.connection_files import Connection, ConnectionFile
from statefulspark.cli.driver import ui as ui_command
from statefulspark.cli.main import build_app


@pytest.fixture(autouse=True)
def home(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("STATEFULSPARK_HOME", str(tmp_path))
    with ConnectionFile(tmp_path, "turnaround") as claim:
        claim.write(Connection(url, TOKEN))
        yield tmp_path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the browser is started with. It reads the page in that moment."""
    arguments: list[str] = []

    def start(url: str) -> bool:
        arguments.append(url)
        path = Path(url.removeprefix("file://"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert f"#token={TOKEN}" in path.read_text()
        return True

    monkeypatch.setattr(webbrowser, "open", start)
    monkeypatch.setattr(ui_command, "_READ_S", 0.0)
    return arguments


def ui(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), ["ui", "--job", "turnaround", *arguments])


def test_the_url_is_printed(url: str, opened: list[str]) -> None:
    assert ui("--print").stdout == f"{url}/#token={TOKEN}\n"
    assert json.loads(ui("--print", "-o", "json").stdout) == {"name": "turnaround", "url": f"{url}/#token={TOKEN}"}
    assert opened == []


def test_the_browser_is_led_to_the_page_by_a_private_file(home: Path, url: str, opened: list[str]) -> None:
    """The token is neither among the arguments of the browser's process nor on the screen."""
    old_umask = os.umask(0)
    try:
        result = ui()
    finally:
        os.umask(old_umask)
    assert result.exit_code == 0, result.output
    (page,) = opened
    assert TOKEN not in page + result.output
    path = Path(page.removeprefix("file://"))
    assert path.parent == home / "pages"
    assert list((home / "pages").iterdir()) == [], "a page with a token does not stay"
    path.write_text("left by a command that was killed")
    os.utime(path, (time.time() - 61, time.time() - 61))
    ui()
    assert list((home / "pages").iterdir()) == []


def test_without_a_browser_the_user_is_told_what_to_do(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    result = ui()
    assert (result.exit_code, result.stdout) == (1, "")
    assert "statefulspark ui --print" in result.stderr
    assert list((home / "pages").iterdir()) == []


def test_a_job_that_does_not_run(home: Path, opened: list[str]) -> None:
    result = CliRunner().invoke(build_app(), ["ui", "--job", "other"])
    assert result.exit_code == 2
    assert opened == []


def test_a_token_of_the_wrong_job_opens_nothing(tmp_path: Path, opened: list[str]) -> None:
    """The page would only show its login."""
    (tmp_path / "token").write_text("x" * 32)
    (tmp_path / "token").chmod(0o600)
    result = ui("--token-file", str(tmp_path / "token"))
    assert result.exit_code == 2
    assert "rejected the token" in result.stderr
    assert opened == []


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to run the page's script")
@pytest.mark.parametrize(("fragment", "stored"), [(f"#token={TOKEN}", TOKEN), ("#token=a%2Bb%26c", "a+b&c"), ("", None), ("#x=1", None)])
def test_the_page_takes_the_token_from_the_fragment(tmp_path: Path, fragment: str, stored: str | None) -> None:
    """It keeps it in the tab and takes it out of the address bar, before anything is loaded."""
    (script,) = re.findall(r"<script>(.*?)</script>", status_page(), flags=re.DOTALL)
    program = f"""
    const kept = {{}}, replaced = [], nothing = new Proxy(function () {{}}, {{ get: (_, name) => name === Symbol.toPrimitive ? () => "" : nothing,
      set: () => true, apply: () => nothing, construct: () => nothing }});
    globalThis.document = {{ getElementById: () => nothing, createElement: () => nothing, addEventListener() {{}} }};
    globalThis.sessionStorage = {{ getItem: k => kept[k] ?? null, setItem: (k, v) => {{ kept[k] = v; }}, removeItem: k => {{ delete kept[k]; }} }};
    globalThis.location = {{ hash: {json.dumps(fragment)}, pathname: "/" }};
    globalThis.history = {{ replaceState: (...given) => replaced.push(given[2]) }};
    globalThis.addEventListener = () => {{}};
    globalThis.fetch = () => new Promise(() => {{}});
    {script}
    console.log(JSON.stringify({{ kept: Object.values(kept), replaced }}));
    process.exit(0);
    """
    (tmp_path / "page.js").write_text(program)
    done = subprocess.run(["node", str(tmp_path / "page.js")], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == {"kept": [stored] if stored else [], "replaced": ["/"] if stored else []}

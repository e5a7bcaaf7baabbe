"""Jars that a job names: found or fetched once, checked, bounded, and told by name when they cannot be had."""

from __future__ import annotations

import hashlib
import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from statefulspark.cli.launch.executor import _job_jars
from statefulspark.connectors import jars as fetching
from statefulspark.connectors.installed import with_connectors
from statefulspark.connectors.jars import FetchError, fetch_jar
from statefulspark.connectors.job_jars import VARIABLE, JobJar, _file_name, jars_folder, resolved_jars
from statefulspark.errors import InvalidInputError, UnavailableError

from .http_server import http_server

CONTENT = b"a jar"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
COORDINATES = "org.example:thing_2.13:1.0"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A repository with one jar, and an empty folder for fetched ones."""
    file = tmp_path / "maven/org/example/thing_2.13/1.0/thing_2.13-1.0.jar"
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)
    return {"STATEFULSPARK_MAVEN": str(tmp_path / "maven"), "STATEFULSPARK_HOME": str(tmp_path / "home")}


def test_coordinates_are_fetched_once(environ: dict[str, str], tmp_path: Path) -> None:
    told: list[str] = []
    first, again = (resolved_jars([JobJar(maven=COORDINATES, sha256=SHA256)], told.append, environ=environ) for _ in range(2))
    assert first == again
    (path,) = first
    assert (path.name, path.read_bytes()) == ("thing_2.13-1.0.jar", CONTENT)
    assert path.is_relative_to(tmp_path / "home" / "jars")
    assert told == ["fetched thing_2.13-1.0.jar (0.0 MiB)"]
    (unchecked,) = resolved_jars([JobJar(maven=COORDINATES)], told.append, environ=environ)
    assert unchecked != path
    assert len(told) == 2


def test_an_executor_fetches_what_the_driver_names(environ: dict[str, str]) -> None:
    assert _job_jars(environ) == []
    (path,) = _job_jars(environ | {VARIABLE: json.dumps([{"maven": COORDINATES, "sha256": SHA256, "path": None, "url": None}])})
    assert Path(path).read_bytes() == CONTENT


def test_what_cannot_be_had_is_named(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    good = JobJar(maven=COORDINATES)
    with pytest.raises(InvalidInputError, match=r"spec\.job\.jars\[1\]\.path: /gone\.jar does not exist"):
        resolved_jars([good, JobJar(path="/gone.jar")], print, environ=environ)
    with pytest.raises(UnavailableError, match=r"spec\.job\.jars\[0\]: org\.example:thing:2 cannot be fetched: .*thing-2\.jar"):
        resolved_jars([JobJar(maven="org.example:thing:2")], print, environ=environ)
    with pytest.raises(UnavailableError, match=f"is not the locked file: SHA-256 {SHA256} instead of 00"):
        resolved_jars([JobJar(maven=COORDINATES, sha256="0" * 64)], print, environ=environ)
    assert [path for path in (tmp_path / "home").rglob("*") if path.is_file()] == [resolved_jars([good], print, environ=environ)[0]]


def test_a_file_needs_no_folder() -> None:
    assert resolved_jars([JobJar(path=__file__)], print, environ={"STATEFULSPARK_HOME": "/proc/none"}) == [Path(__file__)]


def test_the_folder_is_of_the_pod_or_of_the_user() -> None:
    assert jars_folder({"STATEFULSPARK_HOME": "/tmp/home", "XDG_CACHE_HOME": "/cache"}) == Path("/tmp/home/jars")
    assert jars_folder({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/statefulspark/jars")
    assert jars_folder({}) == Path.home() / ".cache/statefulspark/jars"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://a/b/c-1.0.jar?x=/y.jar#z", "c-1.0.jar"),
        ("https://a/b/", "job.jar"),
        ("https://a/b/a:b,c*.zip", "a_b_c_.zip.jar"),
        (f"https://a/{'x' * 300}.jar", f"{'x' * 96}.jar"),
    ],
)
def test_names_are_safe_on_a_class_path(url: str, name: str) -> None:
    assert _file_name(url) == name


@contextmanager
def served(length: int | None, content: bytes) -> Iterator[str]:
    """A server that gives every caller this, whatever length it says."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        if length is not None:
            request.send_header("Content-Length", str(length))
        request.end_headers()
        request.wfile.write(content)

    with http_server(answer) as url:
        yield f"{url}/a.jar"


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("length", [None, 100])
def test_a_jar_without_end_is_given_up(length: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_BYTES_MAX", 10)
    with served(length, b"x" * 100) as url, pytest.raises(FetchError, match="is larger than 0 MiB, or takes longer than 600 s"):
        fetch_jar(url, tmp_path / "a.jar", None, pause_s=0.01)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_half_a_jar_is_none(tmp_path: Path) -> None:
    with served(50, b"x" * 20) as url, pytest.raises(FetchError, match=r"a\.jar cannot be read"):
        fetch_jar(url, tmp_path / "a.jar", None, pause_s=0.01)
    assert list(tmp_path.iterdir()) == []


def test_a_secure_url_does_not_lead_elsewhere() -> None:
    """Anyone on the way could change the file."""
    request = urllib.request.Request("https://repository.example/a.jar")
    with pytest.raises(OSError, match=r"redirected to http://other/a\.jar, which is not https://"):
        fetching._NoDowngrade().redirect_request(request, None, 302, "Found", {}, "http://other/a.jar")


def test_the_jobs_jars_are_on_the_class_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On Kubernetes executors fetch their own."""
    monkeypatch.setenv("STATEFULSPARK_CONNECTORS", str(tmp_path))
    own = [Path("/a.jar"), Path("/b.jar")]
    assert with_connectors({"spark.jars": "/c.jar"}, own, same_image=False) == {"spark.jars": "/c.jar,/a.jar,/b.jar"}
    assert with_connectors({}, own, same_image=True) == {"spark.driver.extraClassPath": "/a.jar:/b.jar"}

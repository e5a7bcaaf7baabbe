"""``statefulspark ui``: open the status page of a job in a browser."""

from __future__ import annotations

import html
import os
import secrets
import time
import webbrowser
from pathlib import Path
from typing import Annotated, Final

import typer

from statefulspark.api_server.run.connection_files import home_directory, write_private
from statefulspark.cli.common.connect import CaFileOption, JobOption, TokenFileOption, connect
from statefulspark.cli.common.ended import EndedJob, ended_job, stored_records
from statefulspark.cli.common.job_command import JobCommand
from statefulspark.cli.common.output import Output, OutputOption, say, show
from statefulspark.cli.common.storage_options import EndpointOption, PathStyleOption, RegionOption
from statefulspark.errors import UnavailableError
from statefulspark.logs.levels import LogLevel

_READ_S: Final = 10.0
"""Time in which a browser starts and reads the page with the token, which is deleted then."""
_RECORDS: Final = 500
"""Log records on the page of a job that has ended."""
_OLD_S: Final = 60.0
"""Age in seconds from which a page is deleted that a killed command has left."""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="ui", cls=JobCommand)(ui)


def ui(
    job: JobOption = None,
    print_: Annotated[bool, typer.Option("--print", help="Print the URL, which contains the job's token, instead of opening it.")] = False,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    output: OutputOption = Output.TABLE,
    endpoint: EndpointOption = None,
    region: RegionOption = None,
    path_style: PathStyleOption = None,
) -> None:
    """Open the status page of a running job in a browser, signed in, or a page of a job that has ended.

    The token is passed in the fragment of the URL, which the browser sends to no server. JOB may also be a job that has ended on this machine, or
    its directory in storage: then the page shows the history that the job stored.
    """
    if (ended := ended_job(job, endpoint, region, path_style)) is not None:
        _open_stored(ended, output, print_=print_)
        return
    with connect(job, token_file, ca_file) as client:
        name = client.status().name
        url = client.page_url()
    if print_ or output is Output.JSON:
        show({"name": name, "url": url}, output)
        if output is Output.TABLE:
            say(url)
        return
    page = _redirecting_page(home_directory(os.environ, Path.home()) / "pages", url)
    try:
        _open(page)
        say(f"opened the status page of job {name}")
        time.sleep(_READ_S)
    finally:
        page.unlink(missing_ok=True)


def _open(page: Path) -> None:
    if not webbrowser.open(page.as_uri()):
        raise UnavailableError("no browser could be started. Open the URL that statefulspark ui --print shows")


def _open_stored(ended: EndedJob, output: Output, *, print_: bool) -> None:
    """Write the page of a job that has ended into a file of this user, and open it. It stays there until the next time."""
    from statefulspark.api_server.models.history import SAMPLES_MAX, HistoryModel
    from statefulspark.api_server.pages import stored_page

    run = ended.run
    history = HistoryModel.of(ended.history(), since_ms=0, samples=SAMPLES_MAX)
    records = stored_records(run, records=_RECORDS, level=LogLevel.INFO, slot=None, uid=None) if run is not None else []
    document = {
        "name": ended.name,
        "directory": ended.directory,
        **(run.model_dump(mode="json") if run is not None else {}),
        "history": history.model_dump(mode="json"),
        "records": [one.model_dump(mode="json") for one in records],
    }
    page = home_directory(os.environ, Path.home()) / "runs" / f"{ended.name}.html"
    page.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(page, stored_page(document))
    if print_ or output is Output.JSON:
        show({"name": ended.name, "url": page.as_uri()}, output)
        if output is Output.TABLE:
            say(page.as_uri())
        return
    _open(page)
    say(f"opened the history of job {ended.name}, which does not run now")


def _redirecting_page(folder: Path, url: str) -> Path:
    """Write a file that only this user can read and that leads to ``url``: other users can see the arguments of the browser's process."""
    from statefulspark.api_server.pages import script_value

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _delete_old(folder)
    path = folder / f"{secrets.token_hex(8)}.html"
    write_private(
        path,
        f'<!doctype html><meta charset="utf-8"><title>statefulspark</title><script>location.replace({script_value(url)})</script>'
        f'<a rel="noreferrer" href="{html.escape(url)}">Open the status page</a>\n',
    )
    return path


def _delete_old(folder: Path) -> None:
    for path in folder.glob("*.html"):
        try:
            if time.time() - path.stat().st_mtime > _OLD_S:
                path.unlink()
        except FileNotFoundError:
            continue  # another process has deleted it

"""A file that says where the coordinator of a job in a notebook answers now.

The DataFrames that a notebook has defined outlive a run of their job, and each run has a coordinator and a secret of its own. So their plans
name this file, in a folder that only this user can read. All processes of such a job are on one machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from statefulspark.errors import InvalidInputError
from statefulspark.exchange.endpoint import Endpoint

_SCHEME: Final = "file:"


def rendezvous(path: Path) -> Endpoint:
    """Return an endpoint that stands for the one that the file names by then."""
    return Endpoint(location=f"{_SCHEME}{path}", secret="")


def announce(path: Path, endpoint: Endpoint) -> None:
    """Write the endpoint of a run to the file."""
    path.write_text(json.dumps({"location": endpoint.location, "secret": endpoint.secret}))


def present(endpoint: Endpoint) -> Endpoint:
    """Return the endpoint that ``endpoint`` stands for; any other is returned as it is.

    Raises:
        InvalidInputError: The job that the endpoint belongs to does not run.
    """
    if not endpoint.location.startswith(_SCHEME):
        return endpoint
    try:
        found = json.loads(Path(endpoint.location.removeprefix(_SCHEME)).read_text())
    except FileNotFoundError:
        raise InvalidInputError(
            "the stream belongs to a local job that does not run",
            field="start",
            remedy="Start it with job.start(stream) of the job whose key_by has made it; run the cell with key_by again if you have created the job again",
        ) from None
    return Endpoint(location=str(found["location"]), secret=str(found["secret"]))

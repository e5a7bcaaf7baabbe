"""Connectors for Spark: the jars of a format that PySpark lacks, in a folder that all jobs of a user share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from statefulspark.connectors.jars import CENTRAL, FetchError, Jar, fetch_jars, missing_jars, read_lock
from statefulspark.errors import InvalidInputError, UnavailableError

CONNECTORS: Final = ("kafka",)
"""Names of the connectors; each has a lock file beside this module."""
FOLDER_VARIABLE: Final = "STATEFULSPARK_CONNECTORS"
_JARS: Final = "spark.jars"
_CLASS_PATHS: Final = ("spark.driver.extraClassPath", "spark.executor.extraClassPath")


def connectors_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Returns ``$STATEFULSPARK_CONNECTORS``, which the job image sets, else ``statefulspark/connectors`` in the user's cache."""
    if given := environ.get(FOLDER_VARIABLE):
        return Path(given)
    cache = environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "statefulspark" / "connectors"


def add_connector(name: str, report: Callable[[str], None], *, source: str = CENTRAL) -> Path:
    """Fetches the jars of a connector that the folder lacks, and returns the folder.

    Raises:
        InvalidInputError: There is no such connector, or the folder cannot be written.
        UnavailableError: The repository did not answer, or has other files.
    """
    jars, folder = _jars(name), connectors_folder()
    try:
        fetch_jars(jars, folder, report, source=source)
    except FetchError as error:
        remedy = "Check the network, or pass --repository with the URL of another repository or a folder with Maven's layout"
        raise UnavailableError(f"{error}. {remedy}") from error
    except OSError as error:
        raise InvalidInputError(
            f"{folder} cannot be written ({error.strerror})", field=FOLDER_VARIABLE, remedy="Name a folder in which you may create files"
        ) from error
    return folder


def connector_jars(name: str) -> list[Path]:
    """Returns the jars of a connector, for ``spark.jars`` of a session of your own; empty if it has not been added.

    Raises:
        InvalidInputError: There is no such connector.
    """
    jars, folder = _jars(name), connectors_folder()
    return [] if missing_jars(jars, folder) else [folder / jar.name for jar in jars]


def with_connectors(settings: Mapping[str, str], jars: Sequence[Path] = (), *, same_image: bool) -> dict[str, str]:
    """Returns the settings that put the job's jars and the added connectors on the class path of driver and executors.

    They come beside the jars that ``settings`` names. A connector is left out if the job names a version of it itself.

    Args:
        settings: The job's own settings of Spark.
        jars: The files of ``spec.job.jars``. On Kubernetes, executors fetch those themselves.
        same_image: True if executors have the jars under the same paths. They would copy those of ``spark.jars`` into their working directory, which
            they cannot write on Kubernetes.
    """
    own = [str(jar) for jar in jars]
    named = " ".join([*own, *(settings.get(name, "") for name in (_JARS, *_CLASS_PATHS, "spark.jars.packages"))])
    found = [str(jar) for name in CONNECTORS if f"spark-sql-{name}" not in named for jar in connector_jars(name)]
    if same_image:
        added = zip(_CLASS_PATHS, ([*own, *found], found), strict=True)
        return {name: ":".join([*filter(None, [settings.get(name)]), *paths]) for name, paths in added if paths}
    return {_JARS: ",".join([*filter(None, [settings.get(_JARS)]), *own, *found])} if own or found else {}


def connector_remedy(name: str) -> str:
    """Returns the remedy for a format that Spark does not know."""
    if name.lower() in CONNECTORS:
        return f"Run `statefulspark connectors add {name.lower()}` once, or use the job image, which has the connector"
    return "Add the connector's jar to spec.job.jars"


def _jars(name: str) -> list[Jar]:
    if name not in CONNECTORS:
        raise InvalidInputError(
            f"there is no connector {name!r}",
            field="NAME",
            remedy=f"Choose one of: {', '.join(CONNECTORS)}; name the jars of others in spec.job.jars",
        )
    return read_lock(Path(__file__).with_name(f"{name}.lock"))

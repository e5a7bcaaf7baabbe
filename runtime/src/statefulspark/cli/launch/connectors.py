"""``statefulspark connectors``: fetch the jars of Spark's sources and sinks that PySpark lacks."""

from __future__ import annotations

from typing import Annotated

import typer

from statefulspark.cli.common.groups import CommandGroup
from statefulspark.cli.common.output import Output, OutputOption, say, show


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(help="Fetch jars of sources and sinks that PySpark lacks.", cls=CommandGroup, no_args_is_help=True)
    group.command(name="add")(add)
    app.add_typer(group, name="connectors")


def add(
    name: Annotated[str, typer.Argument(help="Name of the connector: kafka.")],
    repository: Annotated[
        str | None,
        typer.Option(
            envvar="STATEFULSPARK_MAVEN",
            help="Maven repository: a URL, or a folder with Maven's layout for machines without a network. Defaults to Maven Central.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Fetch a connector's jars into the user's cache.

    Jobs that start afterwards have them.

    The jars are those of a lock file, checked by SHA-256. STATEFULSPARK_CONNECTORS names another folder than the cache.
    """
    from statefulspark.connectors.installed import add_connector, connector_jars
    from statefulspark.connectors.jars import repository_url

    folder = add_connector(name, lambda line: say(line, err=True), source=repository_url(repository))
    show({"connector": name, "folder": str(folder), "jars": [jar.name for jar in connector_jars(name)]}, output)
    if output is Output.TABLE:
        say(f"{name}: {folder}")

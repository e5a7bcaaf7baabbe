"""``python -m e2e [pytest's arguments]``: bring up a cluster, run all tests that want one, take it down if it was not up before.

Without arguments these are the end-to-end tests and those of the operator against a real API server, without those marked slow;
``--all`` runs these too. Paths and options of pytest take the place of that choice.

``--build`` alone only builds the images, for a run that follows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from e2e.harness.images import build_images
from e2e.harness.providers import NONE, PROVIDER, ROOT, choose

WAITS = ("--override-ini=log_cli=true", "--override-ini=log_cli_format=%(asctime)s %(message)s")
"""Shows where a test's time goes, as it goes: what it waited for (the logger ``e2e``)."""


def main(arguments: list[str]) -> int:
    """Run pytest within a cluster; without one, let it say what was skipped."""
    if arguments == ["--build"]:
        return build()
    chosen = "e2e or cluster" if arguments else "(e2e or cluster) and not slow"
    paths = [each for each in arguments if each != "--all"] or ["operator/tests", "e2e"]
    pytest = [sys.executable, "-m", "pytest", *paths, "-n", "0", "-m", chosen, "--durations=0", *WAITS]
    provider = choose()
    if provider is None:
        print(NONE, file=sys.stderr)
        return subprocess.call(pytest, cwd=ROOT)
    made = provider.up()
    try:
        environment = {**os.environ, **provider.environment(), PROVIDER: provider.name}
        return subprocess.call(provider.within(pytest), cwd=ROOT, env=environment)
    finally:
        if made:
            provider.down()


def build() -> int:
    """Build the images, with a cluster that is up meanwhile if the provider needs one for that."""
    provider = choose()
    if provider is None:
        print(NONE, file=sys.stderr)
        return 0
    made = provider.up()
    try:
        build_images(provider)
    finally:
        if made:
            provider.down()
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main(sys.argv[1:]))

"""``python -m statefulspark_operator.crds [--check] [ROOT]``: write the generated files, or tell which are not up to date."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from statefulspark_operator.crds.files import generated_files


def main(arguments: list[str]) -> int:
    """Write the files below the repository's root; with --check write nothing and end with 1 when one differs."""
    parser = argparse.ArgumentParser(prog="python -m statefulspark_operator.crds", description=main.__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path.cwd(), help="the repository; default: the current folder")
    parser.add_argument("--check", action="store_true", help="write nothing, end with 1 when a file is not up to date")
    given = parser.parse_args(arguments)
    stale = 0
    for name, text in generated_files().items():
        path = given.root / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if given.check:
            sys.stderr.write(f"{name} is not up to date; run make crds\n")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {name}\n")
    return 1 if given.check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

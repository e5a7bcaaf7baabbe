"""``python -m statefulspark_operator.crds [--check] [ROOT]``: write the generated files, or check that they are up to date."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from statefulspark_operator.crds.files import generated_files


def main(arguments: list[str]) -> int:
    """Write the generated files. With --check, write nothing and exit with 1 if a file is out of date."""
    parser = argparse.ArgumentParser(prog="python -m statefulspark_operator.crds", description=main.__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path.cwd(), help="root of the repository (default: current directory)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
    given = parser.parse_args(arguments)
    stale = 0
    for name, text in generated_files().items():
        path = given.root / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if given.check:
            sys.stderr.write(f"{name} is out of date. Run make crds\n")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {name}\n")
    return 1 if given.check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

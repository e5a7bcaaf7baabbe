"""Hooks of mkdocs: pages that lie outside of docs/ or are generated, and links that leave the site.

Pages link to files by their paths in the repository, so links work there too. Within the site, a link to a file that is no page becomes a link
to the repository. A link to nothing stays as it is, and mkdocs reports it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parents[2]
REFERENCES: Final = ROOT / "out" / "references"
OUTSIDE: Final = {
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "RELEASE.md": "project/releases.md",
    "SECURITY.md": "project/security.md",
    "charts/statefulspark/README.md": "reference/chart.md",
    "e2e/README.md": "project/end-to-end-tests.md",
    "examples/README.md": "tutorials/examples.md",
}
"""Pages outside of docs/, by their paths in the repository, and where they are in the site."""
_HOME_OF: Final = {site: repository for repository, site in OUTSIDE.items()}
_LINK: Final = re.compile(r"\]\((?![a-z]+:|#|/)([^)\s#]+)(#[^)\s]*)?\)")
_LOADED: Final = re.compile(
    r"""<(?:script|iframe|img|link\b(?=[^>]*\b(?:stylesheet|preload|icon)\b))[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>"""
)
_FENCE: Final = re.compile(r"(^ *```.*?^ *```)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages outside of docs/ and the generated ones."""
    for repository, site in OUTSIDE.items():
        files.append(File.generated(config, site, content=(ROOT / repository).read_text(encoding="utf-8")))
    generated = sorted(REFERENCES.rglob("*.md"))
    if not generated:
        raise PluginError(f"{REFERENCES} is empty. Build the site with `make docs`, which writes the reference pages first")
    for path in generated:
        files.append(File.generated(config, f"reference/{path.relative_to(REFERENCES)}", content=path.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Translate the links of a page."""
    site = page.file.src_uri
    parts = _FENCE.split(markdown)
    # Every second part is a block of code.
    return "".join(part if number % 2 else translated(part, site, config.extra["repository"]) for number, part in enumerate(parts))


def translated(text: str, site: str, repository_url: str) -> str:
    """Return text of the page ``site`` with links that are right within the site."""
    home = posixpath.dirname(_HOME_OF.get(site, f"docs/{site}"))

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(home, match[1]))
        anchor = match[2] or ""
        if target.startswith("docs/"):
            within: str | None = target.removeprefix("docs/")
        else:
            within = OUTSIDE.get(target)
        if within is not None:
            return f"]({posixpath.relpath(within, posixpath.dirname(site) or '.')}{anchor})"
        if not (ROOT / target).exists():
            return match[0]
        kind = "tree" if (ROOT / target).is_dir() else "blob"
        return f"]({repository_url}/{kind}/main/{target}{anchor})"

    return _LINK.sub(link, text)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that loads something from another host: the site works without the internet, and tells nobody who reads it."""
    if loaded := _LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads {loaded[0]} from another host. Put the file into docs/assets")
    return output

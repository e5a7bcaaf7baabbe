"""Links of the documentation lead somewhere, and lists look alike in the repository and on the site. `make docs` checks more, with mkdocs."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from .test_vocabulary import ROOT

PAGES = sorted(
    {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md"), ROOT / "e2e/README.md", *ROOT.glob("charts/*/README.md")}
)
GENERATED = "reference/"
"""Pages of the site that `make docs` writes: folder of the site, without a file in the repository."""
README = ROOT / "README.md"
_OWN = re.compile(
    r"\]\(https://(?:github\.com/statefulspark/statefulspark/(?:blob|tree)|raw\.githubusercontent\.com/statefulspark/statefulspark)/main/"
)
"""Links of the README are absolute, because PyPI shows it too."""
_LINK = re.compile(r"\]\((?![a-z]+:)([^)\s#]*)(?:#([^)\s]+))?\)")


def without_code(text: str) -> str:
    """A page without blocks of code, with its line numbers kept."""
    return re.sub(r"^ *```.*?^ *```", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors of headings, as the repository's host and the site make them."""
    titles = re.findall(r"^#+ (.*)$", without_code(text), flags=re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", title) for title in titles)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in plain}


def broken(page: Path, text: str) -> list[str]:
    """Links of a page that lead to no file, or to no heading of a page."""
    found = []
    for path, anchor in _LINK.findall(_OWN.sub("](", without_code(text)) if page == README else without_code(text)):
        target = (page.parent / path).resolve() if path else page
        generated = target.is_relative_to(ROOT / "docs") and str(target.relative_to(ROOT / "docs")) in site_pages()
        missing = not target.exists() and not generated
        if missing or (
            anchor and target.suffix == ".md" and target.exists() and anchor not in anchors(text if target == page else target.read_text())
        ):
            found.append(f"{path}#{anchor}" if anchor else path)
    return found


def navigation(node: object) -> list[str]:
    """The pages of the site, in order."""
    if isinstance(node, str):
        return [node]
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [page for child in children for page in navigation(child)]


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, which names a Python function."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def site_pages() -> list[str]:
    """The pages that mkdocs.yml lists."""
    return navigation(yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)["nav"])


def test_a_broken_link_is_found() -> None:
    """Without this, a pattern that matches nothing would pass."""
    page = ROOT / "docs" / "sinks.md"
    text = (
        "# A b\n[x](none.md) [y](#a-b) [z](#c) [v](windows.md#late-rows) [w](windows.md#none)\n```\n[u](none)\n```\n[t](reference/cli.md)"
    )
    assert broken(page, text) == ["none.md", "#c", "windows.md#none"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page, page.read_text()) == []


def test_the_readme_has_absolute_links() -> None:
    """PyPI shows it where nothing else of the repository is; that they lead somewhere, the test before checks."""
    text = README.read_text()
    assert re.findall(r"\]\((?!https:|#)[^)]*\)", without_code(text)) == []
    assert broken(README, text.replace("docs/pyflink.md", "docs/none.md", 1)) == ["docs/none.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_list_or_table_begins_after_an_empty_line(page: Path) -> None:
    """Else the site shows it as part of the paragraph before, unlike the repository's host."""
    lines = without_code(page.read_text()).splitlines()
    begins = re.compile(r"^(\* |- |\d+\. |\|)")
    within = re.compile(r"^(\s*$|\* |- |\d+\. |\||\s+\S|#|<!--)")
    assert [
        f"{number}: {line}" for number, (before, line) in enumerate(pairwise(lines), 2) if begins.match(line) and not within.match(before)
    ] == []


def test_every_page_is_in_the_navigation_once() -> None:
    pages = site_pages()
    assert len(pages) == len(set(pages))
    own = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert own - set(pages) == set(), "add them to nav in mkdocs.yml"
    assert [page for page in pages if page not in own and not page.startswith((GENERATED, "project/", "tutorials/examples"))] == []

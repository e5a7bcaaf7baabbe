"""The names and signatures of PyFlink's public classes, read from its source on PyPI without importing it.

``pyflink_signatures.json`` next to this file is the table for the pinned release. Run this file to write it again, after changing the pin:

    python runtime/tests/pyflink/signatures.py
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VERSION = "2.3.0"
URL = (
    "https://files.pythonhosted.org/packages/e1/6a/0c944e1cb9d66e86900d8e1f04bbf17394f4701ba5ddbc5a7198b4447ed1/"
    f"apache_flink-{VERSION}.tar.gz"
)
SHA256 = "47ded5aea434b4b6db3e010cbd6893afcde3eda36cbb07e0260f868f56d370f7"
MODULES = (
    "pyflink/common/time.py",
    "pyflink/common/typeinfo.py",
    "pyflink/common/types.py",
    "pyflink/datastream/data_stream.py",
    "pyflink/datastream/functions.py",
    "pyflink/datastream/output_tag.py",
    "pyflink/datastream/state.py",
    "pyflink/datastream/time_domain.py",
    "pyflink/datastream/timerservice.py",
    "pyflink/datastream/window.py",
    "pyflink/metrics/metricbase.py",
)
LICENSE_NOTE = (
    "Names and parameter names of Apache Flink's Python API (apache-flink on PyPI, Apache License 2.0), read by signatures.py. "
    "It contains no code or documentation of Apache Flink."
)
TABLE = Path(__file__).with_name("pyflink_signatures.json")
SPECIAL = frozenset({"__init__", "__iter__", "__getitem__", "__setitem__", "__delitem__", "__contains__", "__len__", "__call__"})
"""Methods with underscores that callers rely on."""

Classes = dict[str, dict[str, Any]]


def is_compared(name: str) -> bool:
    """Tell whether a member of a class is part of its promise."""
    return name in SPECIAL or not name.startswith("_")


def download() -> bytes:
    """Return the source archive of the pinned release.

    Raises:
        OSError: PyPI cannot be reached.
        ValueError: the archive is not the pinned one.
    """
    with urllib.request.urlopen(URL, timeout=120) as answer:
        archive: bytes = answer.read()
    if hashlib.sha256(archive).hexdigest() != SHA256:
        raise ValueError(f"{URL} does not have the pinned SHA-256")
    return archive


def table_of(archive: bytes) -> dict[str, Any]:
    """Return what the table contains for a source archive."""
    classes: Classes = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for module in MODULES:
            member = files.extractfile(f"apache_flink-{VERSION}/{module}")
            if member is None:
                raise ValueError(f"{module} is not a file")
            for name, node in _classes(ast.parse(member.read())):
                classes[name] = _described(node)
    return {"note": LICENSE_NOTE, "version": VERSION, "url": URL, "sha256": SHA256, "classes": dict(sorted(classes.items()))}


def written(table: dict[str, Any]) -> str:
    """Return the table as it is stored: one member per line, so that a change of the pin reads well."""
    return json.dumps(table, indent=1, ensure_ascii=False) + "\n"


def _classes(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.ClassDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield prefix + node.name, node
            yield from _classes(node, f"{prefix}{node.name}.")


def _described(node: ast.ClassDef) -> dict[str, Any]:
    members: dict[str, str] = {}
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            members[each.name] = _signature(each)
            if each.name == "__init__":
                members.update(dict.fromkeys(_own_attributes(each), "attribute"))
        elif isinstance(each, ast.Assign):
            members.update({target.id: "attribute" for target in each.targets if isinstance(target, ast.Name)})
    bases = [_base(base) for base in node.bases]
    return {
        "bases": [base for base in bases if base not in {"object", "ABC", "Generic", "Enum"}],
        "members": {name: members[name] for name in sorted(members) if is_compared(name)},
    }


def _base(node: ast.expr) -> str:
    return ast.unparse(node.value if isinstance(node, ast.Subscript) else node)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Parameters without annotations; a static method or a property is marked as one."""
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    if "property" in decorators:
        return "attribute"
    arguments = node.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
        if argument is not None:
            argument.annotation = None
    return f"{'static ' if 'staticmethod' in decorators else ''}({ast.unparse(arguments)})"


def own_attributes(source: str) -> set[str]:
    """Return the public attributes that ``__init__`` of a class's source sets on ``self``."""
    tree = ast.parse(source).body[0]
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    return {name for each in body if isinstance(each, ast.FunctionDef) and each.name == "__init__" for name in _own_attributes(each)}


def _own_attributes(init: ast.AST) -> Iterator[str]:
    for node in ast.walk(init):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node.value) == "self"
            and node.attr[0] != "_"
        ):
            yield node.attr


if __name__ == "__main__":
    TABLE.write_text(written(table_of(download())))

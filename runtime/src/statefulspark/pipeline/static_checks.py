"""Checks of a script that do not run it: whether it is Python, and whether it defines the entry point."""

from __future__ import annotations

import ast
import symtable
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from statefulspark.config.job import JobSpec
from statefulspark.config.problems import Problem

_DYNAMIC: Final = frozenset({"exec", "globals", "setattr", "vars", "__getattr__"})
"""Names by which a script can define functions that its text does not show."""


def script_problems(spec: JobSpec) -> Iterator[Problem]:
    """Yield what is wrong with an existing script, without running it.

    A script that could define its entry point while it runs (``from x import *``, ``globals()``) gets the benefit of the doubt.
    """
    if spec.script is None:
        return
    path = Path(spec.script)
    field = "spec.job.script"
    try:
        with tokenize.open(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd literals, which are the author's business
            text = file.read()
            tree = ast.parse(text, str(path))
            table = symtable.symtable(text, str(path), "exec")
    except SyntaxError as error:
        where = f"{path}, line {error.lineno}" if error.lineno else str(path)
        yield Problem(field, f"{where}: {error.msg}", "Correct the program")
    except OSError as error:
        yield Problem(field, f"{path} cannot be read ({error.strerror})", "Make the file readable")
    except (ValueError, RecursionError, MemoryError) as error:
        yield Problem(field, f"{path} is not a Python file ({type(error).__name__})", "Name a .py file")
    else:
        if not _defines(tree, table, spec.entrypoint):
            yield Problem(
                "spec.job.entrypoint",
                f"{path} has no function {spec.entrypoint!r}",
                f"Define `def {spec.entrypoint}(job)` that returns a DataStreamWriter, or name the right function",
            )


def _defines(tree: ast.Module, table: symtable.SymbolTable, name: str) -> bool:
    """True if running the module binds ``name``, or may do so in a way that its text does not show."""
    if name in table.get_identifiers():
        symbol = table.lookup(name)
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace():
            return True
    return any(_may_define(node, name) for node in ast.walk(tree))


def _may_define(node: ast.AST, name: str) -> bool:
    match node:
        case ast.ImportFrom(names=[ast.alias(name="*")]):
            return True
        case ast.Name(id=used) | ast.FunctionDef(name=used):
            return used in _DYNAMIC
        case ast.Global(names=names):
            return name in names
        case _:
            return False

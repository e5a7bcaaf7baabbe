"""Finds which fields of pydantic models the code reads, by model and not by name alone: a dead `host` is found beside a `host` that is used."""

from __future__ import annotations

import ast
import typing
from collections import defaultdict
from collections.abc import Iterable

from pydantic import BaseModel

Model = type[BaseModel]


def models_of(annotation: typing.Any) -> set[Model]:
    """The models that an annotation names, and those of their fields."""
    direct = _named(annotation)
    return direct.union(*(models_of(field.annotation) for model in direct for field in model.model_fields.values()))


def unread_fields(models: Iterable[Model], sources: Iterable[str]) -> set[str]:
    """Fields that no source reads, as ``Model.field``. A read of a field in a base class or subclass counts."""
    known, trees = set(models), [ast.parse(source) for source in sources]
    visitor = _Reads(known, trees)
    for tree in trees:
        visitor.visit(tree)
    return {
        f"{model.__name__}.{field}"
        for model in known
        for field in model.model_fields
        if not any(field in visitor.read[other] and (issubclass(other, model) or issubclass(model, other)) for other in known)
    }


def _named(annotation: typing.Any) -> set[Model]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return set().union(*map(_named, typing.get_args(annotation)))


class _Reads(ast.NodeVisitor):
    """Follows parameters, assignments, loops, attributes and calls. An unknown expression has the models of its last name."""

    def __init__(self, models: set[Model], trees: list[ast.Module]) -> None:
        self.read: defaultdict[Model, set[str]] = defaultdict(set)
        self._models = {model.__name__: model for model in models}
        self._fields: defaultdict[str, set[Model]] = defaultdict(set)
        for model in models:
            for name, field in model.model_fields.items():
                self._fields[name] |= _named(field.annotation)
        self._returns = self._returned(trees)
        self._scopes: list[dict[str, set[Model]]] = [{}]
        self._class: set[Model] = set()

    def _returned(self, trees: list[ast.Module]) -> dict[str, set[Model]]:
        """What functions return and attributes hold, by name."""
        found: defaultdict[str, set[Model]] = defaultdict(set)
        for node in (node for tree in trees for node in ast.walk(tree)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[node.name] |= self._annotated(node.returns)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id not in self._fields:
                found[node.target.id] |= self._annotated(node.annotation)
        return found

    def _annotated(self, node: ast.expr | None) -> set[Model]:
        names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)] if node is not None else []
        return {self._models[name] for name in names if name in self._models}

    def _types(self, node: ast.expr) -> set[Model]:
        match node:
            case ast.Name(id):
                return next((scope[id] for scope in reversed(self._scopes) if id in scope), set())
            case ast.Attribute(value, attr):
                owners = self._types(value)
                if owners and attr in self._fields:
                    return set().union(*(_named(each.model_fields[attr].annotation) for each in owners if attr in each.model_fields))
                return self._returns.get(attr, set()) | self._fields.get(attr, set())
            case ast.Call(func):
                name = func.id if isinstance(func, ast.Name) else getattr(func, "attr", "")
                return self._returns.get(name, set()) | {self._models[each] for each in (name,) if each in self._models}
            case ast.BoolOp(values=values):
                return set().union(*map(self._types, values))
            case ast.IfExp(body=body, orelse=orelse):
                return self._types(body) | self._types(orelse)
            case ast.Subscript(value):
                return self._types(value)
            case _:
                return set()

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for each, its in zip(target.elts, value.elts, strict=False):
                self._bind(each, its)
        elif isinstance(target, ast.Name) and (types := self._types(value)):
            self._scopes[-1][target.id] = types

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        before, self._class = self._class, {self._models[node.name]} if node.name in self._models else set()
        self.generic_visit(node)
        self._class = before

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self._scopes.append({each.arg: self._class if each.arg == "self" else self._annotated(each.annotation) for each in arguments})
        self.generic_visit(node)
        self._scopes.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815  ast's names

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._bind(target, node.value)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._bind(node.target, node.value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._bind(node.target, node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._bind(node.target, node.iter)
        self.generic_visit(node)

    def _comprehended(self, node: ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp) -> None:
        for each in node.generators:
            self.visit(each)
        self.generic_visit(node)

    visit_GeneratorExp = visit_ListComp = visit_SetComp = visit_DictComp = _comprehended  # noqa: N815  ast's names

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            for model in self._types(node.value):
                self.read[model].add(node.attr)
        self.generic_visit(node)

"""The HTML that the driver serves: the status page and a printable reference of the API. Self-contained: loads nothing from other hosts.

The status page contains no data: its script asks for the token (kept in the tab's sessionStorage) and calls the API with it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

REFERENCE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


_REFERENCE_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%;margin-bottom:1rem}td,th{border:1px solid #8886;padding:.25rem .5rem;text-align:left;vertical-align:top}"
)
_SCRIPTS = (
    "status_page.js",
    "status_page_charts.js",
    "status_page_commands.js",
    "status_page_logs.js",
    "status_page_stored.js",
    "status_page_start.js",
)


@cache
def status_page() -> str:
    """Return the page of ``GET /``, with its style and scripts inside, because a refused request is answered with it too."""
    page = _part("status_page.html")
    page = page.replace("<style></style>", f"<style>{_part('status_page.css')}</style>")
    return page.replace("<script></script>", f"<script>{''.join(map(_part, _SCRIPTS))}</script>")


def stored_page(document: Mapping[str, Any]) -> str:
    """Return the page of a job that has ended, as a file that needs no driver: its script shows ``document`` instead of asking for a token."""
    return status_page().replace("<script>", f'<script type="application/json" id="stored">{script_value(document)}</script><script>', 1)


def script_value(value: object) -> str:
    """Return a JSON value as it may stand in a script of a page, which no text within it can end."""
    return json.dumps(value).replace("<", "\\u003c")


def _part(name: str) -> str:
    return files("statefulspark.api_server").joinpath(name).read_text(encoding="utf-8")


@cache
def status_policy() -> str:
    """Return the Content-Security-Policy that lets exactly the page's own script and style take effect.

    The page opens the reference as a blob, which inherits this policy.
    """
    return (
        f"default-src 'none'; script-src {_hashes('script')}; style-src {_hashes('style')} {_hash(_REFERENCE_STYLE)}; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )


def _hashes(tag: str) -> str:
    parts = re.findall(rf"<{tag}>(.*?)</{tag}>", status_page(), flags=re.DOTALL)
    return " ".join(map(_hash, parts))


def _hash(part: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"


def reference_page(document: Mapping[str, Any]) -> str:
    """Render an OpenAPI document as one page: each operation with its parameters, body and answers."""
    parts = [
        f"<h1>{_text(document['info']['title'])} {_text(document['info']['version'])}</h1><p>{_text(document['info']['description'])}</p>"
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(
                f"<h2><code>{method.upper()} {_text(path)}</code></h2><p>{_text(operation.get('description', operation['summary']))}</p>"
            )
            parts.append(_parameters(operation))
            rows = "".join(
                f"<tr><td>{_text(status)}</td><td>{_text(answer['description'])}</td><td>{_schema_of(answer)}</td></tr>"
                for status, answer in operation["responses"].items()
            )
            parts.append(f"<table><tr><th>Status</th><th>Meaning</th><th>Body</th></tr>{rows}</table>")
    parts.append("<h1>Bodies</h1>")
    for name, schema in document["components"]["schemas"].items():
        parts.append(f'<h2 id="{_text(name)}">{_text(name)}</h2><p>{_text(schema.get("description", ""))}</p>{_fields(schema)}')
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>API</title><style>{_REFERENCE_STYLE}</style>'
        f"<body>{''.join(parts)}</body></html>"
    )


def _parameters(operation: Mapping[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{_text(p['name'])}</code></td><td>{_text(p['in'])}</td><td>{_text(p.get('description', ''))}</td></tr>"
        for p in operation.get("parameters", [])
    ]
    if body := operation.get("requestBody"):
        rows.append(f"<tr><td>{_schema_of(body)}</td><td>body</td><td></td></tr>")
    return f"<table><tr><th>Parameter</th><th>In</th><th>Meaning</th></tr>{''.join(rows)}</table>" if rows else ""


def _fields(schema: Mapping[str, Any]) -> str:
    if values := schema.get("enum"):
        return f"<p>One of {', '.join(_text(str(value)) for value in values)}.</p>"
    rows = "".join(
        f"<tr><td><code>{_text(name)}</code></td><td>{_type(field)}</td><td>{_text(field.get('description', ''))}</td></tr>"
        for name, field in schema.get("properties", {}).items()
    )
    return f"<table><tr><th>Field</th><th>Type</th><th>Meaning</th></tr>{rows}</table>"


def _schema_of(part: Mapping[str, Any]) -> str:
    return ", ".join(_type(media.get("schema", {})) or _text(kind) for kind, media in part.get("content", {}).items())


def _type(schema: Mapping[str, Any]) -> str:
    if reference := schema.get("$ref"):
        name = str(reference).rsplit("/", 1)[-1]
        return f'<a href="#{_text(name)}">{_text(name)}</a>'
    if choices := schema.get("anyOf"):
        return " or ".join(_type(choice) for choice in choices)
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return _text(str(schema.get("type", "")))


def _text(value: str) -> str:
    """Escape text; renders backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(value))

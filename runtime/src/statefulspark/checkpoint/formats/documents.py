"""The envelope of every JSON object in a checkpoint directory.

``{"format_version": 1, "kind": "checkpoint", "checksum": "sha256:...", "body": {...}}``. The version comes first, so that people and
other releases see it before anything else. The checksum covers the canonical form of the body (sorted keys, no spaces,
ASCII), so damage is detected even if no other object references the document.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from statefulspark.errors import CorruptDataError, IncompatibleFormatError

FORMAT_VERSION = 16
"""The newest version this release writes and reads; it reads all from 1 on. A document is written in the oldest version that can say it."""

Kind = Literal["checkpoint", "batch", "attempt", "attempt-start", "job", "savepoint-claim"]


class Document(BaseModel):
    """Base of the bodies: immutable, and an unknown field is refused because its meaning would be lost."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    later_fields: ClassVar[Mapping[str, int]] = {}
    """Fields that version 1 does not have, and the version that brought them; left out while they are empty or None."""
    former_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that this release reads and does not fill; left out while they are empty."""

    def least_version(self) -> int:
        """Return the oldest version that can say what the fields of version 1 contain."""
        return 1

    def written_version(self) -> int:
        """Return the oldest version whose releases do all that the contents need; documents that exist may be older, down to `least_version`."""
        return self.least_version()


Body = TypeVar("Body", bound=Document)
"""The model of one kind of document."""


def encode_document(kind: Kind, body: Document) -> bytes:
    """Return the envelope's bytes; equal bodies give equal bytes."""
    fields, version = body.model_dump(mode="json"), body.written_version()
    for name, brought in body.later_fields.items():
        if fields[name] not in (None, [], {}):
            version = max(version, brought)
        else:
            del fields[name]
    for name in body.former_fields:
        if not fields[name]:
            del fields[name]
    canonical = _canonical(fields)
    return b'{"format_version":%d,"kind":"%s","checksum":"%s","body":%s}\n' % (
        version,
        kind.encode(),
        _checksum(canonical).encode(),
        canonical,
    )


def decode_document(data: bytes, kind: Kind, model: type[Body], *, path: str) -> Body:
    """Read an envelope and verify it.

    Args:
        data: The object's bytes.
        kind: The expected kind.
        model: The body's model.
        path: Name of the object for the error text.

    Raises:
        IncompatibleFormatError: Written by a version this release does not read, or with fields it does not know.
        CorruptDataError: Not such a document, or its bytes changed.
    """
    envelope = _envelope(data, path)
    version = envelope["format_version"]
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= FORMAT_VERSION:
        raise IncompatibleFormatError(
            "written in a format that this release cannot read. Use the release that wrote it, or a later one",
            path=path,
            expected=f"format_version 1 to {FORMAT_VERSION}",
            found=f"format_version {version!r}"[:80],
        )
    if envelope.get("kind") != kind:
        raise CorruptDataError("not an object of the expected kind", path=path, expected=kind, found=str(envelope.get("kind"))[:40])
    try:
        canonical = _canonical(envelope.get("body"))
    except (ValueError, RecursionError) as exc:
        raise CorruptDataError("the document contains a number that JSON does not allow, or is nested too deeply", path=path) from exc
    found, expected = _checksum(canonical), str(envelope.get("checksum"))
    if found != expected:
        raise CorruptDataError("the document's contents have changed since it was written", path=path, expected=expected[:80], found=found)
    unknown = [name for name, brought in model.later_fields.items() if version < brought and name in envelope["body"]]
    if unknown:
        raise IncompatibleFormatError(f"fields do not match format_version {version}: {', '.join(unknown)}", path=path)
    try:
        body = model.model_validate_json(canonical)
    except ValidationError as exc:
        # The checksum fits, so these are the bytes that were written: another release with other fields wrote them.
        where = ", ".join(".".join(str(part) for part in problem["loc"]) for problem in exc.errors(include_input=False)[:5])
        raise IncompatibleFormatError(f"fields do not match format_version {version}: {where}", path=path) from exc
    if version < body.least_version():
        raise IncompatibleFormatError(f"contents do not match format_version {version}", path=path, expected=str(body.least_version()))
    return body


def _envelope(data: bytes, path: str) -> dict[str, Any]:
    try:
        envelope = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise CorruptDataError("not a JSON document, or nested too deeply", path=path) from exc
    if not isinstance(envelope, dict) or "format_version" not in envelope:
        raise CorruptDataError("the document has no format_version", path=path)
    return envelope


def _canonical(body: object) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def _checksum(canonical: bytes) -> str:
    return f"sha256:{hashlib.sha256(canonical).hexdigest()}"

"""Downloads an object of S3 into a file: one stream, or several at once for a large object, each of which continues where its connection ended.

The transfer manager of boto3 asks for the size first and cuts every object into parts, which costs a request more per object and, for each byte, several
times the processor time of a plain stream.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from botocore import exceptions as boto

from statefulspark.errors import UnavailableError
from statefulspark.sizes import MIB
from statefulspark.storage.hashes import HashAlgorithm
from statefulspark.storage.pieces import PIECE_BYTES
from statefulspark.storage.transfers import each

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client

_RANGE_BYTES: Final = 64 * MIB
"""Objects of more than two of these come as ranges of this size: one connection rarely has all of a machine's bandwidth."""
_RANGES_AT_ONCE: Final = 4
_INTERRUPTED: Final = (ConnectionError, TimeoutError, boto.ReadTimeoutError, boto.IncompleteReadError, boto.ResponseStreamingError)
"""The connection ended within an answer."""


@dataclass(frozen=True, slots=True)
class Download:
    """One object on its way into a file.

    Args:
        client: Of the service.
        bucket: Its bucket.
        name: Its key in the bucket.
        url: Named in errors.
        attempts: Connections per stream.
    """

    client: S3Client
    bucket: str
    name: str
    url: str
    attempts: int

    def into(self, file: BinaryIO, algorithm: HashAlgorithm) -> str | None:
        """Write all bytes of the object to an empty file.

        Returns:
            Their hash in hexadecimal digits; None if they came as several ranges at once.

        Raises:
            ClientError: The service refuses; NoSuchKey if the object is absent.
            UnavailableError: The connections ended too often, or the object was replaced meanwhile.
        """
        answer = self.client.get_object(Bucket=self.bucket, Key=self.name)
        # Some services have none for files that they did not write themselves; then nothing tells that an object was replaced meanwhile.
        size_bytes, tag = answer["ContentLength"], answer.get("ETag")
        if size_bytes <= 2 * _RANGE_BYTES:
            running = algorithm.new()
            self._stream(file, answer["Body"], 0, size_bytes, tag, running.update)
            return running.hexdigest()
        answer["Body"].close()

        def fetch(start: int) -> None:
            end = min(start + _RANGE_BYTES, size_bytes)
            self._stream(file, self._rest(start, end, tag), start, end, tag, lambda _: None)

        each(fetch, range(0, size_bytes, _RANGE_BYTES), _RANGES_AT_ONCE)
        return None

    def _stream(self, file: BinaryIO, body: StreamingBody, start: int, end: int, tag: str | None, written: Callable[[bytes], None]) -> None:
        """Write the bytes from ``start`` to ``end``, of which ``body`` brings the first ones or all."""
        at = start
        for attempt in range(self.attempts):
            if attempt:
                body = self._rest(at, end, tag)
            with closing(body):
                while (piece := _next(body)) is not None:
                    if not piece:
                        return
                    _write(file, piece, at)
                    written(piece)
                    at += len(piece)
            if at == end:
                return
        raise UnavailableError(f"{self.url}: the transfer was repeatedly interrupted")

    def _rest(self, start: int, end: int, tag: str | None) -> StreamingBody:
        same: dict[str, Any] = {"IfMatch": tag} if tag is not None else {}
        try:
            return self.client.get_object(Bucket=self.bucket, Key=self.name, Range=f"bytes={start}-{end - 1}", **same)["Body"]
        except boto.ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == HTTPStatus.PRECONDITION_FAILED:
                raise UnavailableError(f"{self.url}: the object was replaced while it was read") from error
            raise


def _next(body: StreamingBody) -> bytes | None:
    """Return the next bytes, none at the end, None if the connection has ended before."""
    try:
        return body.read(PIECE_BYTES)
    except _INTERRUPTED:
        return None


def _write(file: BinaryIO, piece: bytes, at: int) -> None:
    left = memoryview(piece)
    while left:
        written = os.pwrite(file.fileno(), left, at)
        left, at = left[written:], at + written

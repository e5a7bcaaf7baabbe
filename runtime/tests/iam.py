"""IAM for tests: moto checks signatures and policies of every request while `enforced`, in its own process, over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
from moto import settings
from moto.core.authorization import ActionAuthenticatorMixin
from runtime.tests.s3_server import S3Server

DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "s3.md"
UNCHECKED = {"Tag", "Key"}
"""Statements for requests that moto allows without asking: tags that come with a write, and KMS."""


def documented_statements(bucket: str, prefix: str) -> list[dict[str, Any]]:
    """The statements of docs/how-to/s3.md, for ``bucket`` and ``prefix``."""
    found = re.search(r"```json\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    text = found[1].replace("BUCKET", bucket).replace("PREFIX", prefix).replace("KEY-ARN", "arn:aws:kms:us-east-1:1:key/k")
    statements: list[dict[str, Any]] = json.loads(text)["Statement"]
    return statements


class User:
    """A user of the service with keys and a policy.

    Args:
        server: The service.
    """

    def __init__(self, server: S3Server) -> None:
        self._iam: Any = boto3.client(
            "iam", endpoint_url=server.endpoint, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
        )
        self.name = f"user-{uuid4().hex}"
        self._iam.create_user(UserName=self.name)
        self.key, self.secret = self.add_key()

    def add_key(self) -> tuple[str, str]:
        """A further pair."""
        made = self._iam.create_access_key(UserName=self.name)["AccessKey"]
        return made["AccessKeyId"], made["SecretAccessKey"]

    def revoke(self, key: str) -> None:
        """From now on the service refuses this key."""
        with unenforced():
            self._iam.delete_access_key(UserName=self.name, AccessKeyId=key)

    def role(self, statements: list[dict[str, Any]]) -> str:
        """ARN of a new role with these rights, that anyone may assume."""
        name = f"role-{uuid4().hex}"
        anyone = {"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRoleWithWebIdentity"}
        trust = json.dumps({"Version": "2012-10-17", "Statement": [anyone]})
        arn = str(self._iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"])
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        self._iam.put_role_policy(RoleName=name, PolicyName="only", PolicyDocument=policy)
        return arn

    def allow(self, statements: list[dict[str, Any]]) -> None:
        """Replace the policy."""
        # For DeleteObjects, moto asks for the right to delete the bucket's own ARN, where AWS asks for each object.
        wider = [
            {**each, "Resource": [each["Resource"], each["Resource"].partition("/")[0]]} if each["Action"] == "s3:DeleteObject" else each
            for each in statements
        ]
        with unenforced():
            policy = json.dumps({"Version": "2012-10-17", "Statement": wider})
            self._iam.put_user_policy(UserName=self.name, PolicyName="only", PolicyDocument=policy)


@contextmanager
def enforced() -> Iterator[None]:
    """Check every request of the block. It holds for all servers of this process."""
    with _checks_after(0):
        yield


@contextmanager
def unenforced() -> Iterator[None]:
    """Check none."""
    with _checks_after(float("inf")):
        yield


@contextmanager
def _checks_after(requests: float) -> Iterator[None]:
    before, counted = settings.INITIAL_NO_AUTH_ACTION_COUNT, ActionAuthenticatorMixin.request_count
    settings.INITIAL_NO_AUTH_ACTION_COUNT, ActionAuthenticatorMixin.request_count = requests, 0
    try:
        yield
    finally:
        settings.INITIAL_NO_AUTH_ACTION_COUNT, ActionAuthenticatorMixin.request_count = before, counted

"""What the end-to-end tests ask of kubectl, with a kubectl of a few lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.harness.kubectl import Kubectl, wait_for

TALKS = """#!/bin/sh
echo "Forwarding from 127.0.0.1:40123 -> 9000"
yes "Handling connection for 40123" | head -n 20000
touch "$TALKED"
exec sleep 60
"""
"""A port-forward through which 20,000 connections have gone."""


def test_a_forwarded_port_stays_open_however_many_connections_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full pipe of its lines would stop kubectl, and every connection after that."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(TALKS)
    kubectl.chmod(0o755)
    talked = tmp_path / "talked"
    monkeypatch.setenv("TALKED", str(talked))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with Kubectl("any").forwarded("pod/store", 9000) as port:
        assert port == 40123
        wait_for("all lines are written", 60, talked.exists)

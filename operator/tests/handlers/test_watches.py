"""How kopf finds the API server."""

from __future__ import annotations

import pytest

from statefulspark_operator.handlers.watches import api_server


@pytest.mark.parametrize(
    ("host", "port", "url"),
    [("10.96.0.1", "443", "https://10.96.0.1:443"), ("fd00::1", "6443", "https://[fd00::1]:6443"), ("", "443", None)],
)
def test_the_api_server_is_found_without_dns(host: str, port: str, url: str | None) -> None:
    """By what Kubernetes puts into each container, IPv6 included."""
    assert api_server({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}) == url

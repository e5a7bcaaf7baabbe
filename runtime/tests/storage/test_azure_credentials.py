"""A shared access signature is all that a reader of the traffic needs, so it never travels in the clear."""

from __future__ import annotations

import pytest

from statefulspark.errors import InvalidInputError
from statefulspark.storage.azure import KEY_VARIABLE, SAS_VARIABLE, AzureStore
from statefulspark.storage.storage_settings import StorageSettings


@pytest.mark.parametrize("endpoint", ["http://127.0.0.2:1/account", "http://store.example/account", "http://127.0.0.1.example/account"])
def test_a_signature_is_not_sent_to_an_endpoint_without_tls(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    monkeypatch.setenv(SAS_VARIABLE, "sv=2024-11-04&sig=hunter2hunter2")
    store = AzureStore("account.dfs.core.windows.net", "container", settings=StorageSettings(endpoint=endpoint))
    with pytest.raises(InvalidInputError, match="would travel in the clear") as caught:
        store.get("key")
    assert "hunter2" not in str(caught.value)

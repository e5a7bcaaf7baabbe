"""Whether the connections of a job need certificates: a job whose slots run elsewhere does not start without."""

from __future__ import annotations

from pathlib import Path

import pytest
from runtime.tests.certificates import authority_of, signed_by, write

from statefulspark.config.kubernetes.pods import TLS_FOLDER_VARIABLE
from statefulspark.errors import InvalidInputError
from statefulspark.job.start.start_job import _certificates


@pytest.mark.parametrize("master", ["local[4]", "local-cluster[2,3,1024]", "spark://127.0.0.1:7077"])
def test_on_one_machine_there_is_nothing_to_encrypt(master: str) -> None:
    assert _certificates(master) is None


@pytest.mark.parametrize("master", ["k8s://https://10.0.0.1", "spark://node-1:7077", "yarn"])
def test_elsewhere_nothing_goes_in_clear(master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TLS_FOLDER_VARIABLE, raising=False)
    with pytest.raises(InvalidInputError, match=f"{TLS_FOLDER_VARIABLE}.*requires TLS"):
        _certificates(master)
    authority = authority_of()
    folder = write(tmp_path / "tls", authority, signed_by(authority))
    monkeypatch.setenv(TLS_FOLDER_VARIABLE, folder.path)
    assert _certificates(master) == folder

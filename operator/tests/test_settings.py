"""The operator's environment: everything has a default but who it is, and what is wrong is said by name."""

from __future__ import annotations

import pytest

from statefulspark.errors import InvalidInputError
from statefulspark_operator.settings import PREFIX, LogFormat, OperatorSettings

MINIMAL = {f"{PREFIX}NAMESPACE": "statefulspark", f"{PREFIX}POD_NAME": "operator-0", "PATH": "/bin", "STATEFULSPARK_API_PORT": "1"}


def test_only_its_own_variables_are_read() -> None:
    """Defaults for the rest; other programs' variables are left alone, and an empty one is as good as none."""
    settings = OperatorSettings.of({**MINIMAL, f"{PREFIX}WATCH_NAMESPACES": "", f"{PREFIX}JOB_IMAGE": " "})
    assert settings == OperatorSettings(namespace="statefulspark", pod_name="operator-0")
    assert settings.watch_namespaces == ()
    assert settings.job_image is None


def test_everything_can_be_set() -> None:
    """Lists, durations, numbers, booleans and words."""
    settings = OperatorSettings.of(
        {
            **MINIMAL,
            f"{PREFIX}WATCH_NAMESPACES": "a, b,",
            f"{PREFIX}LEASE_DURATION": "1min",
            f"{PREFIX}WEBHOOK_ENABLED": "false",
            f"{PREFIX}METRICS_PORT": "9091",
            f"{PREFIX}LOG_FORMAT": "text",
        }
    )
    assert settings.watch_namespaces == ("a", "b")
    assert settings.lease_duration == 60_000
    assert settings.webhook_enabled is False
    assert settings.metrics_port == 9091
    assert settings.log_format is LogFormat.TEXT


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({f"{PREFIX}NAMESPACE": ""}, "namespace: is missing. Add it: Namespace of the operator, with its Lease and canary"),
        ({f"{PREFIX}LEAES_NAME": "x"}, "leaes_name: is not a field. Did you mean lease_name?"),
        ({f"{PREFIX}LEASE_DURATION": "5s"}, "lease_renew_deadline: must be longer than lease_retry_period and shorter than lease_duration"),
        ({f"{PREFIX}LEASE_DURATION": "15"}, "lease_duration: not a duration"),
        ({f"{PREFIX}HEALTH_PORT": "9090"}, "webhook_port: health_port, metrics_port and webhook_port must differ"),
        ({f"{PREFIX}HEALTH_PORT": "0"}, "health_port: 0 is out of bounds"),
        ({f"{PREFIX}LOG_LEVEL": "loud"}, "log_level: 'loud' is not known"),
        ({f"{PREFIX}WATCH_NAMESPACES": "Team A"}, "watch_namespaces"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, str], sentence: str) -> None:
    """A misspelt variable must not be ignored silently."""
    with pytest.raises(InvalidInputError) as caught:
        OperatorSettings.of({**MINIMAL, **changes})
    assert sentence in str(caught.value)

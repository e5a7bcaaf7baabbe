"""FirstError: the error that ends the job."""

from __future__ import annotations

from statefulspark.errors import StatefulSparkError


class FirstError:
    """Remembers the first one. Thread-safe.

    Attributes:
        error: None while there is none.
    """

    def __init__(self) -> None:
        self.error: StatefulSparkError | None = None

    def fail(self, error: StatefulSparkError) -> None:
        """End the job."""
        if self.error is None:
            self.error = error

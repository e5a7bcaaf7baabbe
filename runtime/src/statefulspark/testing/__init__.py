"""What users need to test their functions without Spark."""

from __future__ import annotations

from statefulspark.testing.harness import HarnessSnapshot, KeyedProcessHarness

__all__ = ["HarnessSnapshot", "KeyedProcessHarness"]

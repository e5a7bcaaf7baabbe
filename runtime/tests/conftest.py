"""Settings of every test: hypothesis profiles, chosen with ``HYPOTHESIS_PROFILE`` (dev, ci, thorough)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline: the machine is shared, and a slow example is no defect.
settings.register_profile("dev", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("dev"), derandomize=True, max_examples=100)
settings.register_profile("thorough", parent=settings.get_profile("dev"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

"""Settings for all tests: how many examples hypothesis tries."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

LAW_EXAMPLES = int(os.environ.get("SHIM_LAW_EXAMPLES", "2000"))
"""Examples for the laws of turns, which are cheap; CI sets 20000."""

settings.register_profile(
    "shim",
    max_examples=max(LAW_EXAMPLES // 10, 50),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shim")

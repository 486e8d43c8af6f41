"""Settings for all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# A noisy machine must not fail a test by being slow; pytest-timeout bounds the whole of it.
settings.register_profile("default", deadline=None)
settings.register_profile("soak", deadline=None, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

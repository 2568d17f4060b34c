"""Packages that tests can do without on some machines."""

from __future__ import annotations

import os
import platform

import pytest


def require_pyterrier() -> None:
    """Skip without PyTerrier; it has to be there in CI, where all that it needs can be installed."""
    if not (os.environ.get("CI") and platform.machine() == "x86_64"):
        pytest.importorskip("pyterrier")

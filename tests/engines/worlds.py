"""What is exported to every engine: a model of each kind, and data with features of very different sizes."""

from __future__ import annotations

from tests.test_exports import RANKERS, ROUTED, world

__all__ = ["RANKERS", "ROUTED", "world"]

"""A search engine behind the service, which finds documents for a query and computes their features."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from fastapi import Request

from querywise.errors import DataError
from querywise.runtime.arrays import Floats
from querywise.runtime.values import JsonObject
from querywise.service.api import ApiError
from querywise.service.limits import BoundedThreadPool, Limits
from querywise.service.loaded_model import LoadedModel
from querywise.service.metrics import metric

_THREADS = 16  # they wait for the engine more than they compute
_ANSWERS = "Searches in the engine: ranked; engine, in its own order, as no model could; failed, of which it had none."
logger = logging.getLogger("querywise.service")


class EngineHit(NamedTuple):
    """A document as the engine found it: its score there, its content, and its features by name."""

    id: str
    score: float
    source: JsonObject
    features: Mapping[str, float]


class Gateway:
    """The engine whose documents are ranked.

    names: of the features that it computes. search: what it finds for a text, best first; a DataError where it fails.
    limits: `seconds` for its answer.
    """

    def __init__(
        self, names: Sequence[str], search: Callable[[str], list[EngineHit]], limits: Limits | None = None
    ) -> None:
        self.names = tuple(names)
        self.answers: Counter[str] = Counter()
        self._search = search
        self._threads = BoundedThreadPool(limits or Limits(), threads=_THREADS)

    def check(self, model: LoadedModel) -> None:
        """Raise an error if the model needs features that the engine does not compute."""
        wanted, count = model.manifest.feature_names, model.manifest.feature_count
        lacking = next((each for each in wanted or () if each not in self.names), None)
        if lacking is None and (wanted is not None or count == len(self.names)):
            return
        found = f"the feature {lacking!r:.100}" if lacking is not None else f"{count} features without names"
        raise DataError(
            f"The model takes {found}; the engine computes {', '.join(self.names):.300}. Serve a model that was fitted "
            "on what `querywise log` logged by the same file or store."
        )

    async def found(self, text: str, request: Request) -> list[EngineHit]:
        """Return the engine's hits. If it fails, raise ApiError; the reason is only in this service's log."""
        try:
            return await self._threads.run(lambda: self._search(text), request)
        except DataError as error:
            self.answers["failed"] += 1
            logger.warning("the engine failed: %s", error)
            message = "The search engine did not answer as it should; the log of this service says why."
            raise ApiError(502, "engine_failed", message) from None
        except ApiError as error:
            self.answers["failed"] += error.code != "gone"
            if error.code != "too_slow":
                raise
            seconds = self._threads.limits.seconds
            raise ApiError(504, "engine_slow", f"The search engine took longer than {seconds:g} seconds.") from None

    def rows(self, hits: Sequence[EngineHit], model: LoadedModel) -> Floats:
        """Return the documents' features in the model's order; a missing score is 0, as in logged features."""
        names = model.manifest.feature_names or self.names
        return np.array([[each.features.get(name, 0.0) for name in names] for each in hits])

    def metrics(self) -> str:
        """Counts in the format of Prometheus."""
        kinds = ("ranked", "engine", "failed")
        lines = (f'querywise_gateway_answers_total{{outcome="{each}"}} {self.answers[each]}' for each in kinds)
        return metric("gateway_answers_total", "counter", _ANSWERS, lines)

    def close(self) -> None:
        """Cancel the searches that wait."""
        self._threads.close()

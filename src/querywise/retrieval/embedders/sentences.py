"""Models of the library sentence-transformers, by their name or folder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from querywise.errors import DataError
from querywise.runtime.arrays import Floats


class SentenceEmbedder:
    """A model of sentence-transformers; it is downloaded, if its name is not a folder, when it is first used."""

    def __init__(self, model: str) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise DataError(
                f"sentence-transformers:{model}: the package is not installed: pip install sentence-transformers. It "
                "brings PyTorch along, which is large, and is therefore no extra of querywise."
            ) from None
        try:
            self._model = SentenceTransformer(model)
        except Exception as error:  # noqa: BLE001 - the library raises errors of several other libraries
            raise DataError(f"sentence-transformers:{model}: the model cannot be loaded ({error}).") from None

    def __call__(self, texts: Sequence[str], /) -> Floats:
        """One row per text."""
        found = self._model.encode(list(texts), convert_to_numpy=True, show_progress_bar=False)
        return np.asarray(found, dtype=np.float64)

"""Models of the library sentence-transformers, by their name or folder; without code and pickles of the model's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from querywise.errors import DataError
from querywise.runtime.arrays import Floats
from querywise.runtime.files import read_regular_file

_OWN = "sentence_transformers."
_PICKLES = "pytorch_model*.bin"  # the library takes them where there is no .safetensors file
_MOST_BYTES = 10_000_000  # of modules.json


class SentenceEmbedder:
    """A model of sentence-transformers; it is downloaded, if its name is not a folder, when it is first used."""

    def __init__(self, model: str) -> None:
        if Path(model).is_dir():
            check_model_folder(Path(model))
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise DataError(
                f"sentence-transformers:{model}: the package is not installed: pip install sentence-transformers. It "
                "brings PyTorch along, which is large, and is therefore no extra of querywise."
            ) from None
        try:
            # Weights in other files than .safetensors are pickles, which can run any code when they are loaded.
            self._model = SentenceTransformer(
                model, trust_remote_code=False, model_kwargs={"use_safetensors": True, "trust_remote_code": False}
            )
        except Exception as error:  # noqa: BLE001 - the library raises errors of several other libraries
            raise DataError(f"sentence-transformers:{model}: the model cannot be loaded ({error}).") from None

    def __call__(self, texts: Sequence[str], /) -> Floats:
        """One row per text."""
        found = self._model.encode(list(texts), convert_to_numpy=True, show_progress_bar=False)
        return np.asarray(found, dtype=np.float64)


def check_model_folder(folder: Path) -> None:
    """Refuse a model that could run code: classes of its own, or weights that are pickles.

    Older versions of the library import any class that the folder of a model names.
    """
    try:
        content = json.loads(read_regular_file(folder / "modules.json", folder, _MOST_BYTES))
    except FileNotFoundError:
        content = []
    except (ValueError, RecursionError) as error:
        raise DataError(f"{folder / 'modules.json'}: cannot be read ({error}).") from None
    kinds = [
        each.get("type") if isinstance(each, dict) else each
        for each in (content if isinstance(content, list) else [content])
    ]
    foreign = [kind for kind in kinds if not isinstance(kind, str) or not kind.startswith(_OWN)]
    pickles = [path for path in sorted(folder.rglob(_PICKLES)) if not any(path.parent.glob("*.safetensors"))]
    if foreign:
        said = f"its modules.json names the class {foreign[0]!r:.100}, which is not of sentence-transformers"
    elif pickles:
        said = f"{pickles[0].relative_to(folder)} is a pickle, and there is no .safetensors file beside it"
    else:
        return
    raise DataError(f"sentence-transformers:{folder}: {said}. Loading it could run any code. Use another model.")

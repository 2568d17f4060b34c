"""Models of the library sentence-transformers, by name or folder, without the model's own code or pickles."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from querywise.errors import DataError
from querywise.runtime.arrays import Floats
from querywise.runtime.files import read_regular_file

# Module types that import nothing by a name in the folder, under their paths in all versions of the library.
_MODULE = re.compile(r"sentence_transformers\.(?:[a-z_]+\.)*(Transformer|Pooling|Normalize|Dense)(?:\.\1)?")
_ACTIVATION = re.compile(r"torch\.nn\.modules\.(activation|linear)\.[A-Za-z0-9]+")  # of Dense, which imports it
_PICKLES = "pytorch_model*.bin"  # used by the library if there is no model.safetensors
_MOST_BYTES = 10_000_000  # of modules.json


class SentenceEmbedder:
    """A sentence-transformers model; unless its name is a folder, it is downloaded on first use."""

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
            # Weights in files other than .safetensors are pickles, which can run any code when loaded.
            self._model = SentenceTransformer(
                model, trust_remote_code=False, model_kwargs={"use_safetensors": True, "trust_remote_code": False}
            )
        except Exception as error:  # noqa: BLE001 - the library raises errors of several other libraries
            raise DataError(f"sentence-transformers:{model}: the model cannot be loaded ({error}).") from None

    def __call__(self, texts: Sequence[str], /) -> Floats:
        """Return one row per text."""
        found = self._model.encode(list(texts), convert_to_numpy=True, show_progress_bar=False)
        return np.asarray(found, dtype=np.float64)


def check_model_folder(folder: Path) -> None:
    """Raise DataError for a model that could run code: custom classes, or pickled weights.

    The library imports any class that a model's folder names, and some modules import further ones.
    """
    found = _read(folder, "modules.json")
    modules = found if isinstance(found, list) else [found]
    said = next(filter(None, (_harm(folder, each) for each in modules)), None)
    pickles = [path for path in sorted(folder.rglob(_PICKLES)) if not (path.parent / "model.safetensors").is_file()]
    if said is None and pickles:
        said = f"{pickles[0].relative_to(folder)} is a pickle, and there is no model.safetensors beside it"
    if said is not None:
        raise DataError(f"sentence-transformers:{folder}: {said}. Loading it could run any code. Use another model.")


def _harm(folder: Path, module: object) -> str | None:
    """Return what a module could do besides its purpose, or None."""
    kind, place = (module.get("type"), module.get("path", "")) if isinstance(module, dict) else (module, "")
    found = _MODULE.fullmatch(kind) if isinstance(kind, str) else None
    if found is None:
        return f"its modules.json names the class {kind!r:.100}; allowed are Transformer, Pooling, Normalize and Dense"
    if not isinstance(place, str) or not (folder / place).resolve().is_relative_to(folder.resolve()):
        return f"its modules.json names the path {place!r:.100}, which is not in the folder"
    if found[1] != "Dense":
        return None
    settings = _read(folder, f"{place}/config.json".lstrip("/"))
    activation = settings.get("activation_function") if isinstance(settings, dict) else settings
    if activation is None or (isinstance(activation, str) and _ACTIVATION.fullmatch(activation)):
        return None
    return f"its Dense module names the activation {activation!r:.100}, which is not one of torch.nn"


def _read(folder: Path, name: str) -> object:
    try:
        return json.loads(read_regular_file(folder / name, folder, _MOST_BYTES))
    except FileNotFoundError:
        return []
    except (ValueError, RecursionError) as error:
        raise DataError(f"{folder / name}: cannot be read ({error}).") from None

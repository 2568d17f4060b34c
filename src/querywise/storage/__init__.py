"""Fitted rankers and adapters in folders, which execute nothing when they are loaded."""

from querywise.storage.models import Manifest, check_model_folder, load, load_ranker, read_manifest, save, version_of

__all__ = ["Manifest", "check_model_folder", "load", "load_ranker", "read_manifest", "save", "version_of"]

"""Fitted rankers and adapters in folders; loading them executes no code from the folder."""

from querywise.storage.models import Manifest, check_model_folder, load, load_ranker, read_manifest, save, version_of

__all__ = ["Manifest", "check_model_folder", "load", "load_ranker", "read_manifest", "save", "version_of"]

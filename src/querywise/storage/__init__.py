"""Fitted rankers in folders, which execute nothing when they are loaded."""

from querywise.storage.folder import Manifest, check_model_folder, read_manifest, version_of
from querywise.storage.models import load, save

__all__ = ["Manifest", "check_model_folder", "load", "read_manifest", "save", "version_of"]

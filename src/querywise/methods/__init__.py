"""Rankers by the names that users type: the table of methods, their settings, and how a ranker is built from them."""

from querywise.methods.method import TEXT_VIEW, Method, Setting, parse_settings, settings_of_several, typed
from querywise.methods.table import METHODS, PEERS, current_name, described, find_method, recommended

__all__ = [
    "METHODS",
    "PEERS",
    "TEXT_VIEW",
    "Method",
    "Setting",
    "current_name",
    "described",
    "find_method",
    "parse_settings",
    "recommended",
    "settings_of_several",
    "typed",
]

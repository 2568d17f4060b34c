"""Sources of the two scripts in every export: a check of the engine's scores, and a router of queries.

`check_parity.py` and `router.py` are the parts that all engines share, `check_ENGINE.py` and `route_ENGINE.py` the
parts of one engine. An export joins shared part and engine's part to one file. The check needs Python's standard
library only. The types are loose: the scripts read what an engine answers, and a user's copy needs no types of ours.
"""

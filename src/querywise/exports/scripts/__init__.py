"""Written into every export: a check of the engine's scores, and a client that routes queries.

`router.py` is what the routers of all engines share, `route_ENGINE.py` what is one engine's own; an export joins them.
Their types are loose: they read what an engine answers, and a user's copy needs no types of ours for it.
"""

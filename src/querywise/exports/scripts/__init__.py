"""Sources of the scripts in an export: a check of the engine's scores, an upload, and a router of queries.

`check_parity.py`, `upload.py` and `router.py` are the parts that all engines share, `check_ENGINE.py`,
`upload_ENGINE.py` and `route_ENGINE.py` the parts of one engine. An export joins shared part and engine's part to one
file. Check and upload need Python's standard library only; the upload imports the check beside it. The types are loose:
the scripts read what an engine answers, and a user's copy needs no types of ours.
"""

"""The papers' tables, figures and claims on the data at hand, one file per paper: `python -m reproduction`."""

"""The version of tune. `tuner/__init__.py` imports what starts a run, and that needs it too."""

VERSION = "0.1.0"

"""The version of tune, apart from `tuner/__init__.py`, whose imports need it too."""

VERSION = "0.1.0"

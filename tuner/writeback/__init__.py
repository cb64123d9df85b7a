"""Writes a winner's configs into the model repository, and undoes such writes.

No other package changes a repository: docs/architecture.md, Writing back. It leaves hidden regular
files: a journal in the repository, and the backups next to `config.pbtxt`. Triton takes every
directory in a repository for a model, even a hidden one, and warns of every directory in a model
that is not a version; it ignores files, in all model control modes.
"""

"""Puts a winner's configs into the model repository, and takes them back.

The only package that changes a repository: docs/architecture.md, Writing back. It leaves hidden
plain files: a journal in the repository, and the backups next to `config.pbtxt`. Triton takes
every directory of a repository for a model, dotted or not, and warns of every directory of a model
that is not a version; files are ignored, in all model control modes.
"""

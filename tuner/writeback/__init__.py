"""Puts a winner's configs into the model repository, and takes them back.

The only package that changes a repository. Whatever happens, each `config.pbtxt` is the old file or
the new one, byte for byte, never a part of either. Of several all are old or all are new: after a
kill between two of them, from the next command on.

Beside `config.pbtxt` it leaves hidden plain files: a journal of the writes and the backups the
journal names. Plain files because Triton takes every directory of a repository for a model,
dotted or not, and warns of every directory of a model that is not a version; files it ignores,
in all three model control modes.
"""

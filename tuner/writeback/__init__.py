"""Puts a winner's configs into the model repository, and takes them back.

The only package that changes a repository. Whatever happens, each `config.pbtxt` is the old file or
the new one, byte for byte, never a part of either. Of several files, all are old or all are new.
After a kill between two of them, the next command that writes there restores that; those that only
read say so, and those that measure refuse to (`tuner.writeback.rollback`).

Next to `config.pbtxt` it leaves hidden plain files: a journal of the writes, and the backups that
the journal names. They are plain files because Triton takes every directory of a repository for a
model, dotted or not, and warns of every directory of a model that is not a version. Files are
ignored, in all three model control modes.
"""

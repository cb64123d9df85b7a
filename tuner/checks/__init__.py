"""Checks of a spec and its model repository that need no server."""

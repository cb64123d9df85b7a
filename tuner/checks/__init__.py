"""What is wrong with a spec and its model repository, or worth knowing, before a server starts."""

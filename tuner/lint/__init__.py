"""What is wrong or risky in a model repository, without a server."""

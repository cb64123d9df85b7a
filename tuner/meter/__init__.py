"""Deploys a config, puts load on it and judges the answers; repeats what was disturbed."""

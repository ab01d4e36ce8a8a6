"""Plays whole episodes with a policy."""

"""Batches of rows that algorithms learn from, made of rollouts."""

"""Computes gradients of rollouts or of rows of a replay memory."""

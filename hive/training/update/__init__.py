"""Applies gradients to the weights, and publishes them."""

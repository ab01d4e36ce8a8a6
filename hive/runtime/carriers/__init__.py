"""Carriers: how a channel moves messages from its producers to its consumers, and how an actor waits for them."""

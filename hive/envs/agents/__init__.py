"""Environments of several agents: PettingZoo's two interfaces, and classes of users with the same methods."""

"""Trained policies: loaded, asked for actions, and written for other programs."""

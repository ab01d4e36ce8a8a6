"""A whole run: its directory, its stages, its control socket, and the data that views show of it."""

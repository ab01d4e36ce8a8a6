"""Runners of other libraries: programs, each for the Python of that library's own environment. Nothing imports them."""

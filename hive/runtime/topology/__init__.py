"""A run described as data: actors, channels and processes, checked and numbered as a plan."""

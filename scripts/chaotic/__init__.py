"""Real runs watched from outside: under kills and stops at random (`scripts/chaos`), or for hours (`scripts/soak`)."""

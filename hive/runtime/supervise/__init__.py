"""The supervisor: it starts actors, learns how processes exit, repairs shared memory, restarts, pauses and ends."""

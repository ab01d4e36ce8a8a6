"""Memory that processes share: segments, layouts of arrays, slots, boards, and the status pages of actors."""

"""Actions and values from the outputs of networks."""

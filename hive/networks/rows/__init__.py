"""What lies around a network: parts and masks of rows, stacks, memory, normalization."""

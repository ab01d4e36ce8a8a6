"""Weights in flat blocks: bound, stepped, computed with natively or on a device."""

"""Compares runs: learning curves of several seeds, statistics of their results, and pictures. No torch.

selection     which runs a user means, and the groups that they form
curves        learning curves and final values, read from run directories
statistics    interquartile mean, bootstrap intervals, probability of improvement, points where a curve reaches a value
results       one row per group, the differences of their configs, and both as text or data
picture       the same as PNG or SVG, the only module that imports matplotlib

Nothing is imported here, because NumPy and matplotlib would delay commands that do not need them.
"""

"""Destinations of metrics and videos."""

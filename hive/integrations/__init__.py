"""Callbacks for other packages."""

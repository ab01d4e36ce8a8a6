"""The Python API: what starts runs from a script or a notebook, and what it gives."""

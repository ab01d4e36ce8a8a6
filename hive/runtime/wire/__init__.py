"""How messages travel: their types, their form as frames, and the transports that carry frames between processes."""

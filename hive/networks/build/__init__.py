"""Networks from parameters: layers, embedders, heads, extractors."""

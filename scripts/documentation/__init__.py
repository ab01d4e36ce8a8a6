"""The site of the guide: pages of examples/guide, a reference made from the code, and their check."""

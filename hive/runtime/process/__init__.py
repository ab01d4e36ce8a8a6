"""The processes of a run: how they are forked, what they host, and how their actors are bound and called."""

"""What users write: actors with ports, handles to other actors, and the location of an error in their code."""

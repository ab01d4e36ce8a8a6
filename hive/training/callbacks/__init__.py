"""User code that is called at the ends of rounds and evaluations, and what it may change."""

"""What an environment takes and gives, as plain data."""

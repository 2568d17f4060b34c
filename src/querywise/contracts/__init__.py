"""What the parts of the library promise one another."""

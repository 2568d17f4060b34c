"""The whole job of each command, one module per command."""

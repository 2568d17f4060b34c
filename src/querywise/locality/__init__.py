"""What makes queries alike, and which of them count for a new one."""

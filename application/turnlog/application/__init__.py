"""turnlog."""

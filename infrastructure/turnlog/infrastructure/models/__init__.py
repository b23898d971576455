"""Chat models over HTTP."""

"""Operators that cannot be had here, written from their documentation: each works on the real API server."""

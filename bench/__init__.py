"""Measurements. Each prints one JSON object as its last line of standard output; progress goes to standard error."""

"""Training jobs, each through its own controller."""

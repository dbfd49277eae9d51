"""The responder killed at every point at which it matters, on real servers, and what must hold all the same."""

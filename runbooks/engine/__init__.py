"""From an incident to a plan, carried out exactly once."""

"""Read-only tools for language models over the Model Context Protocol: what the cluster's incidents are, and why."""

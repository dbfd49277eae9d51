"""The Kubernetes API: nodes and pods."""

"""Adapters to external systems: Kubernetes, training jobs, tickets, chat."""

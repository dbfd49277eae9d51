"""Kafka: clients, topics, dead letters, and what one owner keeps of a partition."""

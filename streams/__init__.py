"""Kafka in, incidents out."""

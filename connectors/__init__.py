"""Everything that talks to the world outside Kafka."""

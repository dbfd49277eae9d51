"""Takes a capture out of Kafka: which offsets, the records of each partition, what compacted topics stood at, and the rest."""

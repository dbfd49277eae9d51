"""The real thing to test against: a Kafka broker and a Kubernetes control plane on loopback."""

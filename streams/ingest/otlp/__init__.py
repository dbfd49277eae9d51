"""OpenTelemetry logs and metrics, as JSON and as protobuf."""

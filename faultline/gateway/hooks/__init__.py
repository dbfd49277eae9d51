"""What other systems post: alerts and events become raw records, what people do elsewhere becomes commands."""

"""Log lines, by the shipper or file format that carries them."""

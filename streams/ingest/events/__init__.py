"""Events and alerts, by the format that carries them."""

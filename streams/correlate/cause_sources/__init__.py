"""Where root causes come from: a class for each kind, all asked the same questions by the engine."""

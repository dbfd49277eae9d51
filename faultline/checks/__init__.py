"""`faultline config check`: what the settings and their files contradict, and what broker, cluster and services say to them."""

"""`faultline demo`: five incidents on a cluster of 16 nodes x 8 GPUs, from the first log line to the job running again."""

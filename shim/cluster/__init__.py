"""The cluster: a store in NATS, and what lets the servers that share it answer for each other. Installed with `[cluster]`."""

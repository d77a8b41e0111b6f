"""Which agents there are: found, installed, asked for what they offer, and started."""

"""Processes, files and other things of the host: the only part that starts processes and signals them."""

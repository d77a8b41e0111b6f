"""What has no subject of its own: JSON, lines, JSON-RPC, ids, diffs."""

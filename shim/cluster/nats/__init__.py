"""The store of a cluster: sessions, journals and leases in NATS JetStream (docs/adr/0031)."""

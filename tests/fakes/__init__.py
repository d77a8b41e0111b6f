"""Programs that behave as agents do on their bad days. Each is started as a process of its own; none is imported."""

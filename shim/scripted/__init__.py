"""A scripted model on loopback, so that real agents run without a model: for recordings, `doctor --probe` and end-to-end tests.

    python -m shim.scripted [PORT] [REQUEST_LOG]

`answers` decides what is said, `tools` knows the tools of the agents that are tested, `schemas` calls those of any other agent,
`anthropic`, `chat` and `responses` are the wires, `server` serves them.
"""

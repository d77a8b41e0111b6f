"""A scripted model on loopback that lets real agents run without a real model, for recordings and end-to-end tests.

    python -m shim.scripted [PORT] [REQUEST_LOG]

`answers` chooses the text and the calls, `tools` holds the agents' own tools, `anthropic`, `chat` and `responses` are the wires,
and `server` serves them.
"""

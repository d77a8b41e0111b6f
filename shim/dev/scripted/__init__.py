"""A scripted model on loopback, with which real agents run in recordings, `doctor --probe` and end-to-end tests.

    python -m shim.dev.scripted [PORT] [REQUEST_LOG]

`answers` chooses the answers, `tools` has the tools of the tested agents, `schemas` finds those of other agents, `anthropic`,
`chat` and `responses` are the wire formats, `server` serves them.
"""

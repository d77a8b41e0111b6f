"""Adopting a new version of an agent or of OpenCode's own clients. `make adopt`, `make adopt-client`.

install    the version from npm into .record/, with the Node that it wants
seen       what a session shows of a recording: texts, tools, questions
verdict    the report: what was found out, and what to do
edits      the tested version in the agent's row of the registry, and what follows from it
agent      all of it for one agent
client     OpenCode's document, SDK and clients
"""

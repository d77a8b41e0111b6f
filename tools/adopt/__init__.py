"""Adopts a new version of an agent (`make adopt`) or of OpenCode as a client (`make adopt-client`).

install    installs a version from npm into .record/, with the Node that it needs
evidence   compares what a session shows of two versions' recordings: texts, tools, questions
verdict    writes the report: findings, and what to do
edits      writes the tested version into the agent's spec and the pin of tests/e2e
agent      runs all steps for one agent
client     tries a version of OpenCode as a client: document, SDK, TUI, web UI
"""

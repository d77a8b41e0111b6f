"""A cluster at work while its nodes are killed, paused, cut off and restarted, and NATS servers are killed: do its promises hold?

python -m tools.chaos [--nodes 4] [--sessions 200] [--seconds 180] [--seed 1] [--data DIR]

plan.py      the faults, from a seed            machines.py  NATS servers, nodes, and the wires between them
faults.py    carries the plan out               proxy.py     a wire that can be cut
clients.py   prompts, aborts, retries           streams.py   what clients read from event streams
evidence.py  all that was seen, and the readings at the end
checks.py    evidence -> violations, pure; every check is a promise of docs/cluster.md
"""

"""Recordings of real agents: our scenes played against the scripted model, each line in and out written down.

scenes    what is played, as data             homes    a fresh home per agent, which leads to the scripted model
driver    one scene with one agent            scrub    no path, name or secret of this machine
report    kinds and fields, new or gone       take     all scenes of one agent, into a folder
"""

"""Records real agents: plays scenes with the scripted model, and writes down each line in and out.

scenes    the scenes, as data                     homes    a fresh home for an agent, configured for the scripted model
driver    plays one scene with one agent          scrub    removes paths, names and secrets of this machine
report    kinds and fields, new or gone           take     records all scenes of one agent into a folder
"""

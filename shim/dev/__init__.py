"""Developer tools: the recorder and the scripted model."""

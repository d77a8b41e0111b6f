"""The built-in agents: a package for each, with its spec and codec, and `kit`, which the codecs share."""

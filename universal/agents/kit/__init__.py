"""What the codecs of all agents share."""

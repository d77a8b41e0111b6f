"""Files of a directory: reading, search, watching, and the roots that bound them."""

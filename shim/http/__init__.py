"""What stands between a request and its handler: access, limits, errors, logging. It knows no face."""

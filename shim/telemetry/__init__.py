"""What is counted, timed, told and traced of the server's work. Nothing here decides anything."""

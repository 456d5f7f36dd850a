"""Arguments and exit codes, one file a command."""

"""What every folder may use: errors, exit codes, text, files, units."""

"""Read Python: what a file or a notebook starts."""

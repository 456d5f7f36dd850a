"""How the server is run."""

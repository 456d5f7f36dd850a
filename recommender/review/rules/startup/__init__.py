"""What keeps a server from starting."""

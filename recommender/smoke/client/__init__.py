"""Send requests and check the answers."""

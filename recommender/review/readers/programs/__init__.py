"""Programs of languages without a parser here: their tokens, and the servers that they start."""

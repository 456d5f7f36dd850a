"""Print a review: text, JSON, SARIF, GitHub commands, JUnit."""

"""Turn runs into coefficients."""

"""Templates of Helm: their expressions, and what they become with the values of their chart."""

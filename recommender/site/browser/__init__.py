"""Run the recommender in a reader's browser: its runtime, its bundle and the calls of its worker."""

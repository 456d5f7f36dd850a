"""Keep the facts true: linters, extraction from wheels, citations."""

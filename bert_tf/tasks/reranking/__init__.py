"""The order of a query's candidate documents by a cross-encoder."""

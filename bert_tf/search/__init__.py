"""Search over document vectors: indexes on disk, BM25, hybrid search, FAISS, bulk embedding."""

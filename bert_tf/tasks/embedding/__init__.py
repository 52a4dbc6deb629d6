"""Vectors of texts for retrieval and similarity: dense, sparse (SPLADE), denoising (TSDAE)."""

"""The run doctor: what it looks at (a corpus, prepared examples, a run), and how it reports."""

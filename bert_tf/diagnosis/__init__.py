"""The run doctor: examines a corpus, prepared examples or a run, and reports findings."""

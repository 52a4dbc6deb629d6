"""The parts that all tasks share: examples/, models/, programs/ and serving/."""

"""Code shared by the fine-tuning programs, from flags and weights to evaluation."""

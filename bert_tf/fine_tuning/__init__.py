"""What the fine-tuning programs share: from flags and weights to a judged model."""

"""Fine-tuning tasks, a folder each: examples, model, losses, answers, serving, program.

base/ has the parts that they share.
"""

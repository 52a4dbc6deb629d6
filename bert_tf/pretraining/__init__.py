"""A pre-training run: prepare, build, train and report.

objectives/ has one objective a file; masked_words/ the pre-trained model as a user's model.
"""

"""Model: the Transformer up to its last hidden state and logits, and its folder on disk."""

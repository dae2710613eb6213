"""Evaluation: metrics with signatures, significance, which translations a model accepts."""

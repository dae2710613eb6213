"""Judging trained models: `analyze` and `compare`, their tables and figures."""

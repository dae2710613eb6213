"""Training: the loop, its optimisers and schedules, checkpoints, progress, and tuning of α."""

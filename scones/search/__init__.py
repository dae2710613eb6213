"""Search: greedy and beam search on one stepping interface."""

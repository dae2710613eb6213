"""Paper: the paper's comparisons, as programs that write their own tables."""

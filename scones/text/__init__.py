"""Text: reading parallel files, cleaning, subwords, the token store, batches."""

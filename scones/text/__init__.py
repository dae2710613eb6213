"""Text: reading parallel files, cleaning, subwords, the token store, batches.

Here stand the token ids on which text, model and search agree; importing them costs nothing.
"""

PAD = 0  # also what the decoder starts from
END = 1
UNKNOWN = 2

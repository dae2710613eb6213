"""The three token ids that every station agrees on; the decoder starts from PAD."""

PAD = 0
END = 1
UNKNOWN = 2

"""What happens to files on disks."""

import os


def truncate(file):
    os.truncate(file, file.stat().st_size - 100)


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)

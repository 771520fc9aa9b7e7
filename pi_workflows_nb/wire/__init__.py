"""What both ends of a pipe or socket share: frames, messages, canonical JSON, hashes, ids."""

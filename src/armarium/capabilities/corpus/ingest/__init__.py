"""From files to the index: prepared in worker processes, recorded, embedded."""

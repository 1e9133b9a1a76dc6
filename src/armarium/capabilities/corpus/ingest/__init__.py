"""From files to the index: find changes, prepare files in isolated worker processes, record, embed."""

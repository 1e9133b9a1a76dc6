"""The storage of a corpus, `meta.sqlite`: documents, chunks, vectors, notes."""

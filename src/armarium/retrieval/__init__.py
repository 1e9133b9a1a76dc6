"""From files to cited passages: extract, chunk, embed, find by words and by meaning, put the two together."""

"""Text into passages that can be found and cited, cut where its structure allows."""

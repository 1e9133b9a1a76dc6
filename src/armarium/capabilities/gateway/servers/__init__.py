"""The servers a call can reach: remote RAG servers, the built-in server, and proxied tools."""

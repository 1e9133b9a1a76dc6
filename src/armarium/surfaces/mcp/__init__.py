"""The Model Context Protocol: the gate, the dispatcher, streamable HTTP and stdio."""

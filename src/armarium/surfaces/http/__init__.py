"""Parts of HTTP that several surfaces share: bodies, origins, headers of proxies, responses, errors."""

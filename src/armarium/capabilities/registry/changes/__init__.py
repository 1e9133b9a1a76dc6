"""Changes to the registry, each within the transaction of one writer."""

"""The embedding model that runs in this process, with weights from an installed package."""

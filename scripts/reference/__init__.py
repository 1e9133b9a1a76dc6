"""The documentation that is generated: reference pages, the page of benchmarks and the tree of modules."""

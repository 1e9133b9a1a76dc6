"""The capabilities, one package each. They do not import each other."""

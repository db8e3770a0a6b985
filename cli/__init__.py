"""Commands: read arguments, call one function of the library, print. No logic."""

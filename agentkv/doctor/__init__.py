"""`agentkv doctor`: is everything there that the engine needs, and does it work?

Importing this loads neither torch nor Triton: what is not installed is a finding, not a crash.
"""

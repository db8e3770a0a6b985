"""`agentkv lint`: find, price and fix prompt layouts that break reuse, in source and templates.

    sources -> formats -> documents (templates, requests) -> rules -> findings -> fixes -> output

A format reads files and knows no rule; a rule reads documents and knows no format. Nothing of the
linted project is imported or run, and nothing here needs the network, torch or LangChain.
"""

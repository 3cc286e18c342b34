"""Custom tools: their input is free text, which may have to follow a grammar.

Models know functions only. So a custom tool is shown, called and constrained as a function with one string parameter,
`input` (`definition`), and its text is taken out of the arguments as they arrive (`input`).
"""

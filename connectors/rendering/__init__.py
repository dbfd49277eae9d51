"""A `Message` in the forms that more than one sink reads: plain text, Markdown, HTML, an Adaptive Card.

Whatever a log line, a person or another system wrote stays text in each of them: it links nowhere, mentions nobody, loads
nothing and is no formula. `tests/connectors/rendering` holds all of them to the same table of hostile texts.
"""

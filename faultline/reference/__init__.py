"""The generated reference pages."""

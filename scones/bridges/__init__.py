"""Bridges: models that open in other frameworks, and other frameworks' models that come here."""

"""The HTTP API and the page: `scones serve` (docs/serving.md)."""

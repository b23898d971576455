"""Counting tokens with tiktoken, without the network."""

from turnlog.infrastructure.tokens.estimator import TiktokenEstimator

__all__ = ["TiktokenEstimator"]

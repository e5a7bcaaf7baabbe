"""Kafka: a sink that writes each batch exactly once."""

from statefulspark.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]

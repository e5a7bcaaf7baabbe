"""Spark settings that have a field of their own in the spec of a job."""

from __future__ import annotations

SPARK_CONF_HOMES = {
    "spark.app.name": "metadata.name",
    "spark.driver.cores": "spec.driver.cores",
    "spark.driver.memory": "spec.driver.memory",
    "spark.driver.memoryOverhead": "spec.driver.memory",
    "spark.driver.memoryOverheadFactor": "spec.driver.memoryParts",
    "spark.driver.minMemoryOverhead": "spec.driver.memoryParts",
    "spark.executor.cores": "spec.executor.slots and spec.executor.exchangeTasks",
    "spark.executor.instances": "spec.executor.instances",
    "spark.executor.memory": "spec.executor.memory",
    "spark.executor.memoryOverhead": "spec.executor.memory",
    "spark.executor.memoryOverheadFactor": "spec.executor.memoryParts",
    "spark.executor.minMemoryOverhead": "spec.executor.memoryParts",
    "spark.executor.pyspark.memory": "spec.executor.memoryParts.pythonPerSlot",
    "spark.kubernetes.container.image": "spec.image",
    "spark.kubernetes.container.image.pullPolicy": "spec.imagePullPolicy",
    "spark.kubernetes.container.image.pullSecrets": "spec.imagePullSecrets",
    "spark.kubernetes.memoryOverheadFactor": "spec.executor.memoryParts",
    "spark.memory.offHeap.enabled": "spec.executor.memoryParts.heap",
    "spark.memory.offHeap.size": "spec.executor.memoryParts.heap",
    "spark.submit.pyFiles": "spec.job.pyFiles",
    "spark.task.cpus": "spec.executor.slots",
}
"""Spark settings that the spec has a field for, and the field."""

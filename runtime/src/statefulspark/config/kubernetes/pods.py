"""The contract between operator and driver about a job's pods: variables, ports, files, container names. Changing one breaks running jobs."""

from __future__ import annotations

from typing import Final

POD_NAME_VARIABLE: Final = "STATEFULSPARK_POD_NAME"
"""Name of the driver's pod; it owns the executor pods."""
POD_NAMESPACE_VARIABLE: Final = "STATEFULSPARK_POD_NAMESPACE"
POD_IP_VARIABLE: Final = "STATEFULSPARK_POD_IP"
"""Address by which executors reach the driver."""
EXECUTOR_TEMPLATE_VARIABLE: Final = "STATEFULSPARK_EXECUTOR_POD_TEMPLATE"
"""Path of the pod template for executors."""
SPARK_SECRET_VARIABLE: Final = "STATEFULSPARK_SPARK_SECRET"  # noqa: S105  the name of a variable, not a secret
"""Name of the Kubernetes Secret by which driver and executors know each other."""
STORAGE_LOCATIONS_VARIABLE: Final = "STATEFULSPARK_STORAGE_LOCATIONS"
"""JSON list of the places in which the driver may write savepoints beside the job's own directories; unset if all are allowed."""

API_PORT: Final = 8480
DRIVER_PORT: Final = 7078
BLOCK_MANAGER_PORT: Final = 7079

DRIVER_CONTAINER: Final = "driver"
EXECUTOR_CONTAINER: Final = "spark-kubernetes-executor"
"""Spark's own name for an executor's container."""

CONFIG_FOLDER: Final = "/etc/statefulspark/job"
MANIFEST_FILE: Final = "job.yaml"
EXECUTOR_TEMPLATE_FILE: Final = "executor-pod.yaml"
"""Keys of the job's config map, and file names in `CONFIG_FOLDER`."""
TOKEN_FOLDER: Final = "/etc/statefulspark/api"  # noqa: S105  a path
TOKEN_KEY: Final = "token"  # noqa: S105  a key in a Secret
SPARK_SECRET_FOLDER: Final = "/etc/statefulspark/spark"  # noqa: S105  a path
SPARK_SECRET_KEY: Final = "spark-secret"  # noqa: S105  a key in a Secret
API_KEEP_ALIVE_S: Final = 75
"""Time for which a driver keeps an idle connection of a client that has sent the token. The operator uses its connection again at the next poll."""
TLS_FOLDER_VARIABLE: Final = "STATEFULSPARK_TLS_FOLDER"
"""Path of a folder with the certificates of the job's processes; on Kubernetes `TLS_FOLDER`."""
TLS_FOLDER: Final = "/etc/statefulspark/tls"
TLS_CERTIFICATE_FILE: Final = "tls.crt"
TLS_KEY_FILE: Final = "tls.key"
TLS_AUTHORITY_FILE: Final = "ca.crt"
"""Keys of the job's Secret of certificates, and file names in `TLS_FOLDER`."""
TLS_SERVER_NAME: Final = "job.statefulspark.internal"
"""The name in every certificate of a job. Pods' addresses change; who is meant is said by the authority, which is the job's own."""
JOB_FOLDER: Final = "/opt/job"
"""Folder in the image that relative paths of ``job.script`` and ``job.pyFiles`` start from."""

JOB_LABEL: Final = "statefulspark.io/job"
COMPONENT_LABEL: Final = "statefulspark.io/component"

CREDENTIALS: Final = {
    "s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    "gs": ("GOOGLE_CREDENTIALS",),
    "abfss": ("AZURE_STORAGE_KEY",),
    "hdfs": (),
}
"""Keys of the Secret that ``checkpointing.storage.credentialsSecret`` names, by the scheme of the storage."""
SESSION_TOKEN: Final = "AWS_SESSION_TOKEN"  # noqa: S105  a key in a Secret
"""A further key for s3, which may be missing."""
CREDENTIALS_FOLDER_VARIABLE: Final = "STATEFULSPARK_CREDENTIALS_FOLDER"
"""Path of a folder with that Secret's keys as files; on Kubernetes `CREDENTIALS_FOLDER`. They follow the Secret, variables do not."""
CREDENTIALS_FOLDER: Final = "/etc/statefulspark/storage-credentials"
CA_FOLDER: Final = "/etc/statefulspark/storage-ca"
CA_FILE: Final = "ca.crt"
"""Mount path of the certificates that ``checkpointing.storage.caBundleFrom`` names."""

"""Names, labels and owner references of a job's children. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from statefulspark_operator.api.names import (
    ANNOTATION_GENERATION,
    API_VERSION,
    FIELD_MANAGER,
    JOB_KIND,
    LABEL_COMPONENT,
    LABEL_JOB,
    LABEL_MANAGED_BY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIdentity:
    """Identity of a job for its children. Names are derived, never stored, so every replica finds the same objects."""

    name: str
    namespace: str
    uid: str
    generation: int
    """Generation of the spec that children are built from."""

    @property
    def driver(self) -> str:
        """The driver's pod, and the service in front of it."""
        return f"{self.name}-driver"

    @property
    def config(self) -> str:
        """The config map with manifest and executor template."""
        return f"{self.name}-config"

    @property
    def secret(self) -> str:
        """The secret with the API's token and Spark's own secret."""
        return f"{self.name}-driver"

    @property
    def certificates(self) -> str:
        """The secret with the job's certificate and that of its authority."""
        return f"{self.name}-tls"

    @property
    def network_policy(self) -> str:
        """Who may connect to the job's pods."""
        return f"{self.name}-driver"

    @property
    def account(self) -> str:
        """Service account, role and role binding of the driver."""
        return f"{self.name}-driver"

    @property
    def disruption_budget(self) -> str:
        """The pod disruption budget of the driver."""
        return f"{self.name}-driver"

    def labels(self, component: str | None = None) -> dict[str, str]:
        """Labels of a child."""
        labels = {
            LABEL_JOB: self.name,
            LABEL_MANAGED_BY: FIELD_MANAGER,
            "app.kubernetes.io/name": "statefulspark",
            "app.kubernetes.io/instance": self.name,
        }
        return labels | ({LABEL_COMPONENT: component} if component is not None else {})

    def selector(self, component: str) -> dict[str, str]:
        """The labels that select pods of one component."""
        return {LABEL_JOB: self.name, LABEL_COMPONENT: component}

    def metadata(self, name: str, component: str | None = None) -> dict[str, Any]:
        """Metadata of a child, which goes with the job."""
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": self.labels(component),
            "annotations": {ANNOTATION_GENERATION: str(self.generation)},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": JOB_KIND,
                    "name": self.name,
                    "uid": self.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        }

"""Who a job is to its children: names, labels, owner. Pure."""

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
    """A job as its children see it. Names are derived, never stored: whoever continues finds the same objects."""

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

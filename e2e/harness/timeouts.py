"""Every wait of the end-to-end tests, seconds. They bound a broken run; what is promised is in `TARGETS`, and measured."""

from __future__ import annotations

from typing import Final

COMMAND_S: Final = 120
"""One call of kubectl."""
BUILD_S: Final = 1500
"""One image, with nothing cached."""
LOAD_S: Final = 600
"""One image into the cluster."""
CLUSTER_UP_S: Final = 600
POD_READY_S: Final = 180
"""Operator or store, image loaded."""
JOB_RUNS_S: Final = 420
"""From the object to the first output: driver, executors and slots."""
CHECKPOINT_S: Final = 120
"""Until a checkpoint that was not there is seen."""
RECOVERY_S: Final = 300
"""Until output goes on after something was killed."""
TRANSITION_S: Final = 420
"""Upgrade, rescale, suspend or rollback."""
GONE_S: Final = 240
"""Until something that was deleted is gone."""
STATUS_S: Final = 60
"""Until the operator has said something in a status."""
FAILOVER_S: Final = 60
ENFORCED_S: Final = 10
"""Until a network plugin acts on a NetworkPolicy; one that takes longer is thought to enforce none."""
RENEWED_S: Final = 240
"""Until a driver shows a new certificate: the kubelet looks for new files once a minute or so, the driver every 20 s."""
LISTED_S: Final = 120
"""Until the object of a kept checkpoint is there, or gone with its files."""
TEST_S: Final = 1500
"""One test, with the building of images before the first."""
POLL_S: Final = 0.5

TARGETS: Final = {
    "executor killed": 30.0,
    "driver killed": 45.0,
    "rescale in place": 15.0,
    "stateful upgrade": 60.0,
    "operator failover": 20.0,
    "namespace deleted": 60.0,
}
"""Longest pause that is promised, seconds: in output, for failover in acting on changes, for a namespace until it is gone. `e2e.report` says which were met: tests judge what is
right, since how fast it is depends on what else the machine does."""

"""A real Kubernetes for tests and experiments, built from source and run on this machine.

`with ControlPlane.start() as plane:` gives `plane.url`, `plane.token`, `plane.ca_file`, `plane.kubeconfig`.
"""

from devcluster.build import ensure
from devcluster.client import ApiError, Client
from devcluster.cluster import Access, Cluster
from devcluster.controlplane import ControlPlane
from devcluster.programs import DevclusterError
from devcluster.readiness import StartError
from devcluster.settings import DEFAULT_COMPONENTS, DEFAULT_CONTROLLERS, Settings

__all__ = [
    "DEFAULT_COMPONENTS",
    "DEFAULT_CONTROLLERS",
    "Access",
    "ApiError",
    "Client",
    "Cluster",
    "ControlPlane",
    "DevclusterError",
    "Settings",
    "StartError",
    "ensure",
]

"""A real Kubernetes for tests and experiments, built from source and run on this machine.

`with ControlPlane.start() as plane:` gives `plane.url`, `plane.token`, `plane.ca_file`, `plane.kubeconfig`.
"""

from devcluster.build.compile import ensure
from devcluster.control_plane.client import ApiError, Client
from devcluster.control_plane.cluster import Access, Cluster
from devcluster.control_plane.plane import ControlPlane
from devcluster.control_plane.readiness import StartError
from devcluster.errors import DevclusterError
from devcluster.settings import DEFAULT_COMPONENTS, DEFAULT_CONTROLLERS, ClusterSettings

__all__ = [
    "DEFAULT_COMPONENTS",
    "DEFAULT_CONTROLLERS",
    "Access",
    "ApiError",
    "Client",
    "Cluster",
    "ClusterSettings",
    "ControlPlane",
    "DevclusterError",
    "StartError",
    "ensure",
]

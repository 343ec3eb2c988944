"""Jobs at the edge of what is allowed: one table for `validate` and for a real API server."""

from __future__ import annotations

from simkube.build import JobBuilder, job
from tests.api.bad_jobs import PADDLE
from tests.api.bad_pods import CLAIM, containers, env, from_status, gloo_directory, port, template

GOOD_JOBS: dict[str, JobBuilder] = {
    "one worker": job().worker(),
    "a name that begins with a digit, by address": job("7b").worker(),
    "a name of one letter, by service": job("a").worker().spec(intranet="Service"),
    "the longest name that a hostname has room for": job("a" * 54).worker(10),
    "the greatest number of workers": job().worker(5000),
    "a declared role without pods and template": job().worker().spec(ps={"replicas": 0}),
    "a long name beside a role without pods": job("a" * 54).worker().spec(heter={"replicas": 0}),
    "replicas left out": job().spec(worker={"template": {"spec": {"containers": [PADDLE]}}}),
    "servers that always start again": job().worker().ps(pod={"restartPolicy": "Always"}),
    "all three roles": job().ps().worker().heter(),
    "gloo without servers": job().worker().spec(withGloo=2),
    "empty texts": job().worker().spec(intranet="", cleanPodPolicy="", cleanPolicy=""),
    "both names of the clean policy": job().worker().spec(cleanPolicy="Always", cleanPodPolicy="Never"),
    "requests and limits around the replicas": job().spec(
        worker={"replicas": 2, "requests": 1, "limits": 4, "template": {"spec": {"containers": [PADDLE]}}}
    ),
    "limits of zero": job().spec(
        worker={"replicas": 2, "limits": 0, "template": {"spec": {"containers": [PADDLE]}}}
    ),
    "every field about the job's life": job()
    .worker()
    .spec(
        backoffLimit=0,
        successPolicy="Worker0",
        suspend=True,
        activeDeadlineSeconds=1,
        startupDeadlineSeconds=1,
        ttlSecondsAfterFinished=0,
        managedBy="kueue.x-k8s.io/multikueue",
        restartPolicy={
            "permanentExitCodes": [1, 2],
            "retryableExitCodes": [137],
            "ignoredExitCodes": [99],
            "delaySeconds": 0,
            "maxDelaySeconds": 0,
            "nodeLostSeconds": 10,
            "noProgressLimit": 1,
            "parked": True,
        },
    ),
    "elastic": job().worker(2).spec(elastic=0),
    "spares": job().worker(2).spec(spares=2, intranet="podip"),
    "a gang of all pods": job()
    .ps(1)
    .worker(2)
    .spec(
        schedulingPolicy={
            "minAvailable": 3,
            "queue": "q",
            "priorityClass": "high",
            "minResources": {"cpu": 2, "memory": "4Gi", "nvidia.com/gpu": "1e1", "x.org/y": "500m"},
        }
    ),
    "the pod's address as the operator would set it": job().worker(
        env=env("POD_IP", **from_status("status.podIP"))
    ),
    "the pod's address where the operator sets a name": job()
    .worker(env=env("POD_IP", **from_status("status.podIP")))
    .spec(intranet="Service"),
    "a protected variable on the second container": containers(
        PADDLE, {"name": "log", "image": "log:1", "env": env("PADDLE_TRAINER_ID")}
    ),
    "variables of the user's own": job().worker(
        env=[*env("EPOCHS"), *env("NODE", **from_status("spec.nodeName")), {"name": "EMPTY"}]
    ),
    "variables that the user may set": job().worker(
        env=[*env("PADDLE_JOB_ID"), *env("PADDLE_DISTRI_BACKEND")]
    ),
    "a port of the node that is none": job().worker(ports=[{"containerPort": 80, "hostPort": 0}]),
    "a port of the node that is none, on its network": job()
    .worker(ports=[{"containerPort": 80, "hostPort": 0}])
    .spec(intranet="Host"),
    "a master that all workers reach": job().worker(2, env=env("PADDLE_MASTER", value="10.0.0.9:8080")),
    "a master by name": job().worker(2, env=env("PADDLE_MASTER", value="master.team:8080")),
    "a master that is not written out": job().worker(
        2, env=env("PADDLE_MASTER", **from_status("status.hostIP"))
    ),
    "a master of one worker alone": job().worker(1, env=env("PADDLE_MASTER", value="127.0.0.1:8080")),
    "a master that the launcher does not look at": job().worker(
        2,
        command=["python", "-m", "paddle.distributed.launch", "train.py"],
        env=env("PADDLE_MASTER", value="127.0.0.1:8080"),
    ),
    "a master that servers and workers do without": job()
    .ps()
    .worker(2, env=env("PADDLE_MASTER", value="localhost")),
    "gloo that meets in a file system of the user's": job()
    .ps()
    .worker(env=[*env("PADDLE_WITH_GLOO"), *env("PADDLE_GLOO_RENDEZVOUS", value="2")])
    .spec(withGloo=0),
    "gloo of all pods in a shared directory": job()
    .ps(**gloo_directory("/shared", volume=CLAIM))
    .worker(**gloo_directory("/shared/gloo", volume={"hostPath": {"path": "/mnt"}}))
    .spec(withGloo=2),
    "gloo in a directory of HDFS": job()
    .ps(env=[*env("PADDLE_GLOO_FS_PATH", value="/hdfs"), *env("PADDLE_GLOO_RENDEZVOUS", value="1")])
    .worker(env=[*env("PADDLE_GLOO_FS_PATH", value="/hdfs"), *env("PADDLE_GLOO_RENDEZVOUS", value="1")])
    .spec(withGloo=2),
    "gloo in a directory of a ConfigMap's choice": job()
    .ps(env=env("PADDLE_GLOO_FS_PATH", value="$(SHARED)/gloo"))
    .worker(env=env("PADDLE_GLOO_FS_PATH", **from_status("metadata.uid")))
    .spec(withGloo=2),
    "gloo without servers, where nobody reads it": job().worker(2, env=env("PADDLE_WITH_GLOO")),
    "gloo that all do without": job()
    .ps(env=env("PADDLE_WITH_GLOO", value="0"))
    .worker(env=env("PADDLE_WITH_GLOO", value="0")),
    "gloo in the other of its two ways": job().ps().worker(env=env("PADDLE_WITH_GLOO", value="2")),
    "gloo as somebody else says": job()
    .ps(env=env("PADDLE_WITH_GLOO", value="0"))
    .worker(env=env("PADDLE_WITH_GLOO", **from_status("metadata.uid"))),
    "fields of a pod that only the API server knows": job().worker(
        pod={"tolerations": [{"operator": "Exists"}], "hostAliases": [], "schedulerName": "volcano"}
    ),
    "labels, annotations and finalizers": template(
        {
            "metadata": {"name": "x", "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e/f"]},
            "spec": {"containers": [PADDLE]},
        }
    ),
    "empty fields, as templating tools leave them": template(
        {
            "metadata": {"labels": None, "annotations": None},
            "spec": {
                "containers": [{**PADDLE, "env": None, "ports": None, "resources": None}],
                "volumes": None,
                "hostNetwork": None,
            },
        }
    ),
    "one port number for two protocols of the host": job()
    .worker(ports=[port(53, hostPort=53), port(53, protocol="UDP")])
    .spec(intranet="Host"),
    "the network of the node, with its ports": job()
    .worker(2, pod={"hostNetwork": True})
    .spec(intranet="Host"),
    "the same in another spelling": job().worker(2, pod={"hostNetwork": True}).spec(intranet="hostnetwork"),
    "the network of the node for the only pod": job().worker(1, pod={"hostNetwork": True}),
    "the same with an empty role": job().ps(0).worker(1, pod={"hostNetwork": True}),
    "a network of its own": job().worker(2, pod={"hostNetwork": False}),
    "one port name in two containers": containers(
        {**PADDLE, "ports": [port(80, name="http"), port(81, name="fifteen-letters"), port(82, name="")]},
        {"name": "b", "image": "b", "ports": [port(83, name="http")]},
    ),
    "one port of the node at two addresses or for two protocols": job().worker(
        ports=[
            port(80, hostPort=8080, hostIP="10.0.0.1"),
            port(81, hostPort=8080, hostIP="10.0.0.2"),
            port(82, hostPort=8080, protocol="UDP"),
        ]
    ),
    "one port in two containers by address": containers(
        {**PADDLE, "ports": [port(80)]}, {"name": "b", "image": "b", "ports": [port(80, hostPort=8080)]}
    ),
}

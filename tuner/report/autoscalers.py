"""What starts another replica at a run's proved load: objects for KEDA and for Kubernetes' HPA.

Sources: the references of HorizontalPodAutoscaler (autoscaling/v2), of KEDA's ScaledObject and
Prometheus scaler, and of Triton's metrics.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from tuner.errors import SpecError
from tuner.report.sizing import Sizing
from tuner.spec.units import digits

#: Triton counts the requests that it answered, for each model and version.
COUNTER = "nv_inference_request_success"
_EVERY_POD = """\
# The query adds up all pods that Prometheus watches. Where others serve the models as well, select
# this deployment's beside model=, by a label that your Prometheus has, such as pod=~"NAME-.+".
"""


def scaled_object(sizing: Sizing, deployment: str, prometheus: str) -> str:
    """A ScaledObject of KEDA, as YAML: the rate of all replicas, with a threshold for each.

    Where Prometheus cannot tell the rate, all replicas run: KEDA would take silence for no load.
    """
    rates = [f"rate({COUNTER}{{model={json.dumps(name)}}}[1m])" for name in sizing.models]
    trigger = {
        "serverAddress": prometheus,
        "query": f"sum({' or '.join(rates)})",
        "threshold": digits(sizing.threshold_requests_per_s, 4),
        "ignoreNullValues": "false",
    }
    spec = {
        "scaleTargetRef": {"name": deployment},
        "minReplicaCount": 1,
        "maxReplicaCount": sizing.replicas,
        "fallback": {"failureThreshold": 3, "replicas": sizing.replicas},
        "triggers": [{"type": "prometheus", "metadata": trigger}],
    }
    return _EVERY_POD + _yaml("keda.sh/v1alpha1", "ScaledObject", sizing, spec)


def pod_autoscaler(sizing: Sizing, deployment: str) -> str:
    """A HorizontalPodAutoscaler, as YAML: the mean rate of the pods, by Prometheus' adapter."""
    of_models = {"key": "model", "operator": "In", "values": list(sizing.models)}
    metric = {"name": f"{COUNTER}_per_second", "selector": {"matchExpressions": [of_models]}}
    threshold = digits(sizing.threshold_requests_per_s, 4)
    target = {"type": "AverageValue", "averageValue": threshold}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
        "minReplicas": 1,
        "maxReplicas": sizing.replicas,
        "metrics": [{"type": "Pods", "pods": {"metric": metric, "target": target}}],
    }
    return _yaml("autoscaling/v2", "HorizontalPodAutoscaler", sizing, spec)


def _yaml(api: str, kind: str, sizing: Sizing, spec: dict[str, Any]) -> str:
    """An object called as what it scales, which says which run its threshold is from.

    Raises:
        SpecError: The counters of these models would tell a higher rate than the one proved.
    """
    if others := ", ".join(sizing.asked_otherwise):
        raise SpecError(
            f"Triton counts other requests to {others} as well: from a model that it is a part of, "
            "or from a stream beside the load",
            "hold the threshold that `tune size` tells against a counter of your own",
        )
    name = spec["scaleTargetRef"]["name"]
    metadata = {"name": name, "annotations": {"triton-tune/run": sizing.run_id}}
    whole = {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}
    return str(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True))

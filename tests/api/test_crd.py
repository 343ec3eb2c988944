from __future__ import annotations

import json
from typing import Any

from paddlejob.api.crd.definition import crd_v1, crd_v1beta1


def column_names(columns: list[dict[str, Any]], priority: int) -> list[str]:
    return [column["name"] for column in columns if column.get("priority", 0) == priority]


def test_names_are_the_contract() -> None:
    crd = crd_v1()
    assert crd["metadata"]["name"] == "paddlejobs.batch.paddlepaddle.org"
    assert crd["spec"]["names"] == {
        "kind": "PaddleJob",
        "listKind": "PaddleJobList",
        "plural": "paddlejobs",
        "singular": "paddlejob",
        "shortNames": ["pdj"],
    }


def test_columns_are_those_of_the_documents() -> None:
    columns = crd_v1()["spec"]["versions"][0]["additionalPrinterColumns"]
    assert column_names(columns, 0) == ["Status", "Mode", "PS", "Worker", "Age"]
    assert column_names(columns, 1) == ["Step", "Loss", "ETA", "Heter", "Reason", "Message"]


def test_scaling_a_job_scales_its_workers() -> None:
    assert crd_v1()["spec"]["versions"][0]["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.worker.replicas",
            "statusReplicasPath": ".status.worker.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


def test_fits_into_the_annotation_of_a_client_side_apply() -> None:
    assert len(json.dumps(crd_v1())) < 256 * 1024


def test_v1beta1_is_equivalent_to_v1() -> None:
    old, new = crd_v1beta1()["spec"], crd_v1()["spec"]["versions"][0]
    assert old["subresources"] == new["subresources"]
    assert [column["JSONPath"] for column in old["additionalPrinterColumns"]] == [
        column["jsonPath"] for column in new["additionalPrinterColumns"]
    ]


def test_v1beta1_has_neither_rules_nor_defaults() -> None:
    text = json.dumps(crd_v1beta1())
    assert '"default"' not in text
    assert "x-kubernetes-validations" not in text


def test_v1beta1_requires_workers_without_a_rule() -> None:
    assert crd_v1beta1()["spec"]["validation"]["openAPIV3Schema"]["properties"]["spec"]["required"] == [
        "worker"
    ]

"""The files of docs/examples/cluster: NATS takes its configuration, and what they name exists (tests/e2e runs them)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from shim.http.access import HEALTH
from shim.lib.settings import Settings, env_name

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "examples" / "cluster"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
KUBERNETES: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
PODS = {row["metadata"]["name"]: row for row in KUBERNETES if row["kind"] in ("StatefulSet", "Deployment")}
SETTINGS = {env_name(field) for field in Settings.model_fields}
IMAGES = {"opencode-shim", "nats:2-alpine", "caddy:2"}
ROUTE = re.compile(r"nats-route://shim:\$[({]\w+[)}]@([\w.-]+):6222")
CHECK_S = 20
OURS = ("node-1", "node-2", "front")
NATS = ("nats-1", "nats-2", "nats-3")


def pod(name: str) -> dict[str, Any]:
    return PODS[name]["spec"]["template"]["spec"]


def container(name: str) -> dict[str, Any]:
    (only,) = pod(name)["containers"]
    return only


@pytest.mark.parametrize("password", ["secret", "123", "5k", "$x"])
def test_nats_takes_its_configuration_with_any_password_in_quotes(password: str) -> None:
    """Without quotes it takes 123 for a number, and panics."""
    compose, kubernetes = SERVICES["nats-1"]["environment"]["NATS_PASSWORD"], variables("nats")["NATS_PASSWORD"]
    assert compose.startswith('"${NATS_PASSWORD:?')
    assert kubernetes == '"$(SECRET)"'
    binary = Path(sys.executable).parent / "nats-server"
    routes = "[nats-route://shim:x@nats-1:6222, nats-route://shim:x@nats-2:6222]"
    done = subprocess.run(
        [binary, "-t", "-c", FOLDER / "nats.conf"],
        env={"NATS_PASSWORD": f'"{password}"', "NATS_ROUTES": routes},
        capture_output=True,
        text=True,
        timeout=CHECK_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_compose_sets_only_settings_that_exist_and_images_that_are_ours_or_official() -> None:
    names = set(chain.from_iterable(service.get("environment", ()) for service in SERVICES.values()))
    ours = {name for name in names if name.startswith("SHIM_")} - {"SHIM_HOST"}
    assert ours <= SETTINGS
    assert {"SHIM_CLUSTER", "SHIM_CLUSTER_PASSWORD", "SHIM_CLUSTER_REPLICAS", "SHIM_ROOTS"} <= ours
    assert {service["image"] for service in SERVICES.values()} == IMAGES
    for name in OURS:
        flags = [word for word in SERVICES[name].get("command", ["serve"])[1:] if word.startswith("--")]
        assert {env_name(flag[2:].replace("-", "_")) for flag in flags} <= SETTINGS


def test_the_servers_of_compose_find_nats_and_keep_three_copies() -> None:
    for name in OURS:
        environment = SERVICES[name]["environment"]
        assert environment["SHIM_CLUSTER"].removeprefix("nats://").split(",") == list(NATS)
        assert int(environment["SHIM_CLUSTER_REPLICAS"]) == len(NATS)
        assert SERVICES[name]["hostname"] == name, "its health is asked by this name"
        assert SERVICES[name]["depends_on"].keys() == set(NATS)
    assert ROUTE.findall(SERVICES["nats-1"]["environment"]["NATS_ROUTES"]) == list(NATS)
    assert "--no-agents" in SERVICES["front"]["command"]


def test_compose_shares_the_projects_alone_and_declares_what_it_uses() -> None:
    volumes = {name: [volume.partition(":")[0] for volume in service["volumes"]] for name, service in SERVICES.items()}
    named = [volume for volume in chain.from_iterable(volumes.values()) if not volume.startswith("$")]
    assert sorted(named) == sorted(COMPOSE["volumes"]), "each is of one service"
    for config in COMPOSE["configs"].values():
        assert (FOLDER / config["file"]).is_file()
    assert {used["source"] for service in SERVICES.values() for used in service.get("configs", ())} == set(COMPOSE["configs"])


def test_only_the_balancer_of_compose_is_reached_from_outside_and_passwords_must_be_set() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["balancer"]
    for name in OURS:
        assert SERVICES[name]["environment"]["OPENCODE_SERVER_PASSWORD"].startswith("${OPENCODE_SERVER_PASSWORD:?")
    caddyfile = (FOLDER / "Caddyfile").read_text()
    assert re.findall(r"(\S+):4096", caddyfile) == ["front", "node-1", "node-2"]
    assert re.findall(r"health_uri (\S+)", caddyfile)[0] in HEALTH


@pytest.mark.skipif(
    shutil.which("caddy") is None, reason="caddy is not installed; tests/e2e/test_cluster_example.py needs it too"
)
def test_caddy_takes_its_configuration(tmp_path: Path) -> None:
    argv = ["caddy", "validate", "--adapter", "caddyfile", "--config", str(FOLDER / "Caddyfile")]
    env = {"SHIM_HOST": "shim.example", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=CHECK_S, check=False)
    assert done.returncode == 0, done.stderr


def test_the_image_has_the_client_of_nats() -> None:
    assert "--extra cluster" in (ROOT / "Dockerfile").read_text()


def variables(name: str) -> dict[str, str]:
    """The variables of a container with a value."""
    return {row["name"]: row["value"] for row in container(name)["env"] if "value" in row}


def test_kubernetes_sets_only_settings_that_exist() -> None:
    (config,) = (row["data"] for row in KUBERNETES if row["kind"] == "ConfigMap")
    for name in ("node", "front"):
        names = {*config, *(row["name"] for row in container(name)["env"])}
        assert {each for each in names if each.startswith("SHIM_")} <= SETTINGS
        assert "SHIM_CLUSTER_PASSWORD" in names
        assert container(name)["readinessProbe"]["httpGet"]["path"] in HEALTH
    hosts = [f"nats-{number}.nats" for number in range(PODS["nats"]["spec"]["replicas"])]
    assert config["SHIM_CLUSTER"].removeprefix("nats://").split(",") == hosts
    assert int(config["SHIM_CLUSTER_REPLICAS"]) == len(hosts)
    assert ROUTE.findall(variables("nats")["NATS_ROUTES"]) == hosts


def test_the_objects_of_kubernetes_fit_together() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    assert kustomization["resources"] == ["kubernetes.yaml"]
    generated = {row["name"]: row["files"] for row in kustomization["configMapGenerator"]}
    assert generated == {"nats": ["nats.conf"]}
    names = {(row["kind"], row["metadata"]["name"]) for row in KUBERNETES} | {("ConfigMap", name) for name in generated}
    for name, row in PODS.items():
        labels = row["spec"]["template"]["metadata"]["labels"]
        assert row["spec"]["selector"]["matchLabels"] == labels
        claims = {claim["metadata"]["name"] for claim in row["spec"].get("volumeClaimTemplates", ())}
        volumes = {volume["name"] for volume in pod(name).get("volumes", ())}
        assert {mount["name"] for mount in container(name)["volumeMounts"]} == claims | volumes
        for volume in pod(name).get("volumes", ()):
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in names
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in names
        for source in container(name).get("envFrom", ()):
            assert ("ConfigMap", source["configMapRef"]["name"]) in names
        secrets = {
            variable["valueFrom"]["secretKeyRef"]["name"]
            for variable in container(name)["env"]
            if "secretKeyRef" in variable.get("valueFrom", {})
        }
        assert secrets == {"opencode-shim"}
    images = {container(name)["image"] for name in PODS}
    assert images <= IMAGES
    assert {row["name"] for row in kustomization["images"]} == {"opencode-shim"}
    selectors = [row["spec"]["selector"] for row in KUBERNETES if row["kind"] == "Service"]
    for selector in selectors:
        assert any(selector.items() <= row["spec"]["template"]["metadata"]["labels"].items() for row in PODS.values())


def test_nats_is_reached_by_our_servers_alone() -> None:
    (policy,) = (row["spec"] for row in KUBERNETES if row["kind"] == "NetworkPolicy")
    assert policy["podSelector"]["matchLabels"] == {"app": "nats"}
    allowed = {
        (peer["podSelector"]["matchLabels"]["app"], port["port"])
        for rule in policy["ingress"]
        for peer in rule["from"]
        for port in rule["ports"]
    }
    assert allowed == {("opencode-shim", 4222), ("nats", 6222)}

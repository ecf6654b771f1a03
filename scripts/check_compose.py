#!/usr/bin/env python3
"""Holds configs/compose.yaml and prometheus.yml against the image that they run.

    scripts/check_compose.py CONFIGS IMAGE_CONFIG HELP

CONFIGS is the folder of both files, IMAGE_CONFIG the image's settings as JSON, HELP the text of
`pagoda serve --help`. Prints one line a finding.
"""
import json
import pathlib
import sys

import yaml

# Those of the Compose specification that a service may have and that are of use here.
SERVICE_KEYS = {
    "image", "build", "command", "environment", "env_file", "ports", "volumes", "mem_limit", "cpus",
    "ulimits", "read_only", "tmpfs", "cap_drop", "security_opt", "restart", "stop_grace_period",
    "healthcheck", "depends_on", "user", "networks", "shm_size",
}
HEALTH_KEYS = {"test", "interval", "timeout", "retries", "start_period", "disable"}


def split_volume(text):
    """SOURCE:TARGET[:MODE], where SOURCE may hold a ${NAME:-default}."""
    pieces = text.rsplit(":", 2)
    if pieces[-1] in ("ro", "rw"):
        return pieces[0], pieces[1], pieces[2]
    source, target = text.rsplit(":", 1)
    return source, target, "rw"


def check_volumes(configs, name, service, declared, findings):
    for text in service.get("volumes", []):
        source, target, _ = split_volume(text)
        if not target.startswith("/"):
            findings.append(f"{name}: volume '{text}' has no absolute path in the container")
        if source.startswith("./"):
            if not (configs / source).exists():
                findings.append(f"{name}: volume '{text}': {source} isn't in {configs}")
        elif source[:1] not in "/$" and source not in declared:
            findings.append(f"{name}: volume '{source}' isn't declared under volumes")


def check_pagoda(service, image, help_text, findings):
    targets = {target: mode for _, target, mode in map(split_volume, service["volumes"])}
    for target in set(targets) ^ set(image["Volumes"]):
        findings.append(f"pagoda: {target} is a volume of only one of image and compose.yaml")
    if targets.get("/models") != "ro":
        findings.append("pagoda: /models is not mounted read-only")
    for text in service["ports"]:
        address, _, port = text.rsplit(":", 2)
        if address != "127.0.0.1":
            findings.append(f"pagoda: port '{text}' is open to other machines without a key")
        if f"{port}/tcp" not in image["ExposedPorts"]:
            findings.append(f"pagoda: port '{text}': the image doesn't listen on {port}")
    for name in service.get("environment", {}):
        flag = "--" + name.removeprefix("PAGODA_").lower().replace("_", "-")
        if not name.startswith("PAGODA_") or f"{flag} " not in help_text:
            findings.append(f"pagoda: {name} is not a flag of `pagoda serve`")
    if "test" not in service["healthcheck"] and not image.get("Healthcheck"):
        findings.append("pagoda: neither image nor compose.yaml has the health check's command")


def check_compose(configs, image, help_text):
    findings = []
    compose = yaml.safe_load((configs / "compose.yaml").read_text("utf-8"))
    for key in set(compose) - {"name", "services", "volumes"}:
        findings.append(f"compose.yaml: '{key}' is not known")
    services = compose["services"]
    for name, service in services.items():
        for key in set(service) - SERVICE_KEYS:
            findings.append(f"{name}: '{key}' is not known")
        for key in set(service.get("healthcheck", {})) - HEALTH_KEYS:
            findings.append(f"{name}: healthcheck's '{key}' is not known")
        for other in service.get("depends_on", {}):
            if other not in services:
                findings.append(f"{name}: depends on '{other}', which is no service")
        if "mem_limit" not in service:
            findings.append(f"{name}: has no limit of memory")
        check_volumes(configs, name, service, compose["volumes"], findings)
    check_pagoda(services["pagoda"], image, help_text, findings)
    return services, findings


def check_prometheus(configs, services, image):
    findings = []
    settings = yaml.safe_load((configs / "prometheus.yml").read_text("utf-8"))
    mounted = {target for _, target, _ in map(split_volume, services["prometheus"]["volumes"])}
    for path in settings.get("rule_files", []):
        if path not in mounted:
            findings.append(f"prometheus.yml: {path} isn't mounted by compose.yaml")
    for job in settings["scrape_configs"]:
        for target in (t for group in job["static_configs"] for t in group["targets"]):
            host, port = target.rsplit(":", 1)
            if host not in services:
                findings.append(f"prometheus.yml: '{host}' is no service of compose.yaml")
            elif f"{port}/tcp" not in image["ExposedPorts"]:
                findings.append(f"prometheus.yml: {target}: the image doesn't listen there")
    return findings


def main():
    configs, image, help_text = map(pathlib.Path, sys.argv[1:4])
    image = json.loads(image.read_text("utf-8"))
    services, findings = check_compose(configs, image, help_text.read_text("utf-8"))
    findings += check_prometheus(configs, services, image)
    print("\n".join(findings) if findings else "compose: nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

"""A stand-in for Kubernetes: an API server on loopback that knows what Spark asks of one, and Pods as processes of this
machine.

It is no Kubernetes: nothing is scheduled, isolated, limited or forbidden. What is real is what Spark sends, and what its Pods
    run.
"""

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import yaml
from image import Image

from penstock.bench.servers.process import kill

NAMESPACE = "default"
KINDS = {
    "pods": ("v1", "Pod"),
    "services": ("v1", "Service"),
    "configmaps": ("v1", "ConfigMap"),
    "persistentvolumeclaims": ("v1", "PersistentVolumeClaim"),
    "networkpolicies": ("networking.k8s.io/v1", "NetworkPolicy"),
}
PATIENCE_S = 120.0

Resource = dict[str, Any]


class Kubelet:
    """A context in which it runs.

    Args:
        image: what Pods run.
        directory: for their volumes and logs.
        secrets: by the name of a Secret, its values.
    """

    def __init__(self, image: Image, directory: Path, secrets: Mapping[str, Mapping[str, str]]) -> None:
        self.image, self._directory, self._secrets = image, directory, secrets
        self.resources: dict[str, dict[str, Resource]] = {kind: {} for kind in KINDS}
        self.created: list[Resource] = []
        """All that was ever created, as it was sent."""
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._addresses = count(2)
        self._over = threading.Event()
        self._lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "Kubelet":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        for process in list(self.processes.values()):
            kill(process)

    def log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def create(self, kind: str, resource: Resource) -> Resource:
        """Take a resource in; a Pod is started."""
        metadata = resource.setdefault("metadata", {})
        with self._lock:
            version, singular = KINDS[kind]
            self.created.append(json.loads(json.dumps({"kind": singular, "apiVersion": version} | resource)))
            metadata |= {"uid": str(uuid4()), "namespace": NAMESPACE, "resourceVersion": "1"}
            metadata["creationTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self.resources[kind][metadata["name"]] = resource
            if kind == "pods":
                resource["status"] = {"phase": "Pending", "podIP": f"127.0.1.{next(self._addresses)}"}
                threading.Thread(target=self.start, args=(metadata["name"],), daemon=True).start()
        return resource

    def delete(self, kind: str, name: str) -> None:
        self.resources[kind].pop(name, None)
        if kind == "pods" and name in self.processes:
            kill(self.processes.pop(name))

    def start(self, name: str) -> None:
        """Start a Pod's container, or start it again."""
        pod = self.resources["pods"][name]
        container = pod["spec"]["containers"][0]
        mounts = {mount["mountPath"]: str(self._volume(pod, mount["name"])) for mount in container.get("volumeMounts", ())}
        given = {each["name"]: self._value(pod, each) for each in container.get("env", ())}

        def here(text: str) -> str:
            text = re.sub(r"\$\((\w+)\)", lambda match: given[match[1]], text)
            for place, volume in mounts.items():
                text = text.replace(place, volume)
            return self.image.moved(text)

        environment = self.image.environment | {name: here(value) for name, value in given.items()}
        command = [self.image.entrypoint, *map(here, container.get("args", self.image.command))]
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environment,
                cwd=self.image.work,
                start_new_session=True,
            )
        self.processes[name] = process
        pod["status"] |= {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        code = process.wait()
        if self.processes.get(name) is process:
            pod["status"] |= {"phase": "Failed" if code else "Succeeded"}

    def kill(self, name: str) -> None:
        """``kill -9`` all that runs in a Pod's container."""
        kill(self.processes.pop(name))

    def _value(self, pod: Resource, variable: Resource) -> str:
        source = variable.get("valueFrom", {})
        if "secretKeyRef" in source:
            return self._secrets[source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]]
        if "fieldRef" in source:
            part, field = source["fieldRef"]["fieldPath"].split(".")
            return str(pod[part][field])
        return str(variable.get("value", ""))

    def _volume(self, pod: Resource, name: str) -> Path:
        """The directory of a volume, filled if it is one of a ConfigMap."""
        [volume] = [each for each in pod["spec"]["volumes"] if each["name"] == name]
        place = self._directory / pod["metadata"]["name"] / name
        place.mkdir(parents=True, exist_ok=True)
        source = volume.get("configMap")
        if source:
            deadline = time.monotonic() + PATIENCE_S
            while source["name"] not in self.resources["configmaps"]:  # Spark makes it after the Pod
                assert time.monotonic() < deadline, source["name"]
                time.sleep(0.05)
            for key, text in self.resources["configmaps"][source["name"]].get("data", {}).items():
                (place / key).write_text(self.image.moved(self._resolved(text, pod)))
        return place

    def _resolved(self, text: str, pod: Resource) -> str:
        """Names of Services as a cluster's DNS gives them: the address of their Pod."""
        return re.sub(rf"[\w.-]+-svc\.{NAMESPACE}\.svc\b", pod["status"]["podIP"], text)

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Resource) -> tuple[int, Any]:
        """A request's status and answer; None is an answer that goes on without an end."""
        match = re.fullmatch(rf"/apis?/[\w./]+/namespaces/{NAMESPACE}/(\w+)(?:/([\w.-]+))?", path)
        if match is None or match[1] not in KINDS:
            return 404, _status(404, f"{method} {path}")
        kind, name = match[1], match[2]
        if method == "GET" and query.get("watch") == "true":
            return 200, None
        known = self.resources[kind]
        if method == "POST":
            return 201, self.create(kind, body)
        if method == "PATCH" and name not in known and {"spec", "data"} & set(body):  # all of it: "apply on the server"
            return 201, self.create(kind, body)
        if name is not None and name not in known:
            return 404, _status(404, f"{kind} {name}")
        if method == "GET" and name is None:
            items = [each for each in known.values() if _selected(each, query.get("labelSelector", ""))]
            return 200, {
                "kind": f"{KINDS[kind][1]}List",
                "apiVersion": KINDS[kind][0],
                "metadata": {"resourceVersion": "1"},
                "items": items,
            }
        if method == "DELETE":
            for each in [name] if name else [n for n, of in known.items() if _selected(of, query.get("labelSelector", ""))]:
                self.delete(kind, each)
            return 200, _status(200, "")
        if method in ("PATCH", "PUT"):
            known[name]["metadata"] |= body.get("metadata", {})
        return 200, known[name]

    def wait(self) -> None:
        """Until it is over."""
        self._over.wait()


def _selected(resource: Resource, selector: str) -> bool:
    labels = resource["metadata"].get("labels", {})
    wanted = [part.partition("=") for part in selector.split(",") if re.fullmatch(r"[^!=]+=[^=]+", part)]
    unwanted = [part.partition("!=") for part in selector.split(",") if "!=" in part]
    return all(labels.get(key) == value for key, _, value in wanted) and all(
        labels.get(key) != value for key, _, value in unwanted
    )


def _status(code: int, message: str) -> Resource:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "code": code,
        "message": message,
        "status": "Success" if code < 400 else "Failure",
    }


def _handler(kubelet: Kubelet) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _respond(self) -> None:
            target = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = yaml.safe_load(self.rfile.read(length)) if length else {}
            query = {name: values[-1] for name, values in parse_qs(target.query).items()}
            if self.headers.get("Upgrade"):  # to a web socket, without which Spark watches by plain HTTP
                code, answer = 503, _status(503, "no web sockets")
            else:
                code, answer = kubelet.answer(self.command, target.path, query, body)
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            if answer is None:  # a watch, in which nothing happens: Spark also asks for lists
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.flush()
                kubelet.wait()
                return
            text = json.dumps(answer).encode()
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    respond: Callable[[Any], None] = Handler._respond
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", respond)
    return Handler

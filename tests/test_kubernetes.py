"""The manifests for Kubernetes are what its schemas, and Kubeflow's, say; and their runs go on Pods that are processes here."""

import json
import os
import re
import subprocess
import time
from pathlib import Path
from shutil import which
from uuid import uuid4

import kubernetes_validate
import pytest
import yaml
from adapters import required
from image import Image, instructions
from kubeflow_spark_api.models.spark_v1beta2_spark_application import SparkV1beta2SparkApplication
from kubelet import Kubelet
from support import write_words

from penstock.storage import durable
from penstock.storage.journal import lines_of
from penstock.storage.place import path_of

ROOT = Path(__file__).parent.parent
MANIFESTS = ROOT / "deploy" / "kubernetes"
VERSIONS = ("1.30", "1.37")
FILES, WORDS = 5, 50
PATIENCE_S = 400
APACHE = {
    "": {"pyFiles", "driverArgs", "runtimeVersions", "applicationTolerations", "sparkConf"},
    "runtimeVersions": {"sparkVersion"},
    "applicationTolerations": {"restartConfig"},
    "applicationTolerations.restartConfig": {"restartPolicy", "maxRestartAttempts", "restartBackoffMillis"},
}
"""What of the Apache operator's fields its documentation names and the manifest uses: it publishes no schema where tests could
fetch it. What it does with them, make a driver by Spark's own builder of Pods, is in the runs below."""


def read(name):
    return list(yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text()))


def arguments(name):
    """The command line of penstock that a manifest has, without what it tells Spark."""
    [resource] = read(name)
    spec = resource["spec"]
    if name == "driver":
        [container] = spec["template"]["spec"]["containers"]
        return [each for each in container["args"] if not each.startswith("--conf=")]
    return spec["arguments" if name == "kubeflow-operator" else "driverArgs"]


def settings(name):
    """What a manifest tells Spark, whichever of its fields says so."""
    [resource] = read(name)
    spec = resource["spec"]
    if name == "driver":
        [container] = spec["template"]["spec"]["containers"]
        pairs = [each.removeprefix("--conf=").partition("=") for each in container["args"] if each.startswith("--conf=")]
        return {key: value for key, _, value in pairs}
    if name == "apache-operator":
        return spec["sparkConf"] | {"spark.submit.pyFiles": spec["pyFiles"]}
    driver, executor = spec["driver"], spec["executor"]
    return spec["sparkConf"] | {  # as that operator's submission says it
        "spark.kubernetes.container.image": spec["image"],
        "spark.kubernetes.memoryOverheadFactor": spec["memoryOverheadFactor"],
        "spark.kubernetes.authenticate.driver.serviceAccountName": driver["serviceAccount"],
        "spark.driver.cores": str(driver["cores"]),
        "spark.driver.memory": driver["memory"],
        "spark.executor.instances": str(executor["instances"]),
        "spark.executor.cores": str(executor["cores"]),
        "spark.executor.memory": executor["memory"],
    }


def validate(resource):
    for version in VERSIONS:
        kubernetes_validate.validate(resource, version, strict=True)


@pytest.mark.parametrize("name", ["access", "driver"])
def test_what_kubernetes_itself_takes_is_of_its_schemas(name):
    for resource in read(name):
        validate(resource)


def test_a_field_that_is_none_is_found():
    [resource] = read("driver")
    resource["spec"]["template"]["spec"]["containers"][0]["arguments"] = ["run"]
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(resource)


def of_kubeflow(resource):
    """A SparkApplication as the operator's own models have it: what they do not know is not in it."""
    return SparkV1beta2SparkApplication.from_dict(resource).to_dict()


def test_what_kubeflows_operator_takes_is_of_its_models():
    [resource] = read("kubeflow-operator")
    assert of_kubeflow(resource) == resource
    assert resource["spec"]["restartPolicy"]["type"] in ("Never", "OnFailure", "Always")
    resource["spec"]["executor"]["instance"] = 2
    assert of_kubeflow(resource) != resource


def test_what_apaches_operator_takes_has_the_fields_that_it_documents():
    [resource] = read("apache-operator")
    assert (resource["apiVersion"], resource["kind"]) == ("spark.apache.org/v1", "SparkApplication")
    for place, names in APACHE.items():
        part = resource["spec"]
        for step in filter(None, place.split(".")):
            part = part[step]
        assert set(part) == names
    assert {type(value) for value in resource["spec"]["sparkConf"].values()} == {str}


def test_all_of_them_run_the_same():
    assert arguments("driver") == arguments("kubeflow-operator") == arguments("apache-operator")
    own = (
        "spark.driver.",
        "spark.kubernetes.driver",
        "spark.kubernetes.authenticate",
        "spark.kubernetes.namespace",
        "spark.submit.",
    )
    of_executors = [
        {key: value for key, value in settings(name).items() if not key.startswith(own)}
        for name in ("driver", "kubeflow-operator", "apache-operator")
    ]
    assert of_executors[0] == of_executors[1] == of_executors[2]
    main_file = {"spark.submit.pyFiles": "local:///opt/penstock/__main__.py"}
    assert settings("apache-operator") == settings("kubeflow-operator") | main_file  # so one run below stands for both


def test_the_main_file_is_where_the_image_has_it():
    copied = [given.split() for instruction, given in instructions() if instruction == "COPY"]
    places = {f"{to}{Path(name).name}" for *names, to in copied for name in names}
    [kubeflow], [apache] = read("kubeflow-operator"), read("apache-operator")
    assert kubeflow["spec"]["mainApplicationFile"] == apache["spec"]["pyFiles"] == "local:///opt/penstock/__main__.py"
    assert {"/opt/penstock/__main__.py", "/opt/penstock/entrypoint.sh"} <= places


def slow(test):
    """A test of what the recipe makes, which takes minutes to make; Spark takes its own."""
    return pytest.mark.slow(pytest.mark.timeout(1200)(test))


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    required(which("tini"), "tini; on Debian: sudo apt-get install tini")
    image = Image(tmp_path_factory.mktemp("image"))
    new = start(image, "new", str(image.directory / "app"))
    assert new.returncode == 0, new.stderr
    return image


@pytest.fixture
def kubelet(image, tmp_path, s3):
    keys = {name: s3.environment[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    with Kubelet(image, tmp_path, {"penstock-store": keys}) as running:
        yield running


@pytest.fixture
def place(s3):
    """A directory of a test's own in a store, with files of words."""
    place = f"{s3.uri}/{uuid4().hex}"
    write_words(f"{place}/input", FILES, WORDS)
    return place


def start(image, *arguments, **environment):
    return subprocess.run(
        [image.entrypoint, *arguments], env=image.environment | environment, capture_output=True, text=True, timeout=180
    )


@slow
def test_the_recipe_makes_what_it_is_to_make(image):
    assert {line.split()[0] for line in image.said} >= {"apt-get", "useradd", "chown"}
    assert "Usage: penstock" in start(image, *image.command).stdout
    jars = {path.name.rpartition("-")[0] for path in (image.directory / "opt/spark/jars").iterdir()}
    assert {"spark-kubernetes_2.13", "hadoop-aws", "s3", "spark-sql-kafka-0-10_2.13", "kafka-clients"} <= jars
    assert all(path.exists() for path in (image.directory / "opt/spark/jars").iterdir())


@slow
def test_an_executor_without_a_driver_says_so(image):
    said = start(
        image,
        "executor",
        SPARK_EXECUTOR_MEMORY="256m",
        SPARK_JAVA_OPT_0="-Dname=of two words",
        SPARK_EXECUTOR_ID="1",
        SPARK_JAVA_OPT_1="-XshowSettings:properties",
        SPARK_DRIVER_URL="spark://CoarseGrainedScheduler@127.0.0.1:9",
        SPARK_EXECUTOR_CORES="1",
        SPARK_APPLICATION_ID="spark-1",
        SPARK_EXECUTOR_POD_IP="127.0.0.1",
        SPARK_RESOURCE_PROFILE_ID="0",
        SPARK_EXECUTOR_POD_NAME="executor-1",
    )
    assert said.returncode
    assert "name = of two words" in said.stderr
    assert "Failed to connect to /127.0.0.1:9" in said.stderr + said.stdout


def here(text, place, kubelet):
    """What a manifest says, with the places of this test, and less memory."""
    text = text.replace("s3a://BUCKET/input", "s3a://BUCKET/input?max_files=1").replace("s3a://BUCKET", place)
    return re.sub(r"\b1g$", "640m", text.replace("https://kubernetes.default.svc", kubelet.url))


def await_batches(place, number, alive):
    deadline = time.monotonic() + PATIENCE_S
    while sum(1 for _ in lines_of(path_of(f"{place}/runs/words") / "batches-main.jsonl")) < number:
        assert alive()
        assert time.monotonic() < deadline
        time.sleep(0.2)


def check(place, kubelet):
    report = json.loads(durable.read(path_of(f"{place}/runs/words") / "report.json"))
    counts = report["counts"]
    assert (counts["accepted"], counts["processed"]) == (FILES * WORDS, FILES * WORDS)
    assert (counts["lost"], counts["duplicated"], counts["queued"]) == (0, 0, 0)
    output = path_of(f"{place}/output")
    lines = [
        json.loads(line)
        for name in durable.names(output)
        if name.endswith(".jsonl")
        for line in durable.read(output / name).splitlines()
    ]
    assert max(line["seen"] for line in lines) == FILES * WORDS // 5
    assert len(lines) == len({(line["text"], line["seen"]) for line in lines})
    assert len(list(lines_of(path_of(f"{place}/runs/words") / "starts.jsonl"))) == 2
    for resource in kubelet.created:
        validate(resource)
    pods = [each for each in kubelet.created if each["kind"] == "Pod"]
    executors = [pod for pod in pods if pod["metadata"].get("labels", {}).get("spark-role") == "executor"]
    assert len(executors) >= 4  # two of each driver
    for executor in executors:
        [container] = executor["spec"]["containers"]
        assert container["image"] == "REGISTRY/words:1"
        secret = next(each for each in container["env"] if each["name"] == "AWS_SECRET_ACCESS_KEY")
        assert secret["valueFrom"]["secretKeyRef"]["name"] == "penstock-store"
    said = json.dumps(kubelet.created)
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in said


@slow
def test_a_driver_in_a_pod_of_its_own_is_started_again(kubelet, place, s3):
    [deployment] = read("driver")
    template = deployment["spec"]["template"]
    [container] = template["spec"]["containers"]
    container["args"] = [*(here(each, place, kubelet) for each in container["args"]), "--until-idle"]
    container["env"].append({"name": "AWS_ENDPOINT_URL", "value": s3.environment["AWS_ENDPOINT_URL"]})
    name = f"words-{uuid4().hex[:5]}"
    kubelet.create("pods", {"metadata": template["metadata"] | {"name": name}, "spec": template["spec"]})

    def runs():
        return kubelet.resources["pods"][name]["status"]["phase"] in ("Pending", "Running")

    await_batches(place, 2, runs)
    kubelet.kill(name)
    kubelet.start(name)  # as its Deployment's policy has it, in the same Pod
    assert kubelet.resources["pods"][name]["status"]["phase"] == "Succeeded", kubelet.log(name).read_text()[-3000:]
    check(place, kubelet)


@slow
def test_a_driver_that_is_submitted_again_goes_on(kubelet, place, s3, tmp_path):
    operator = "apache-operator"
    token = tmp_path / "token"
    token.write_text("of no use here")
    given = {key: here(value, place, kubelet) for key, value in settings(operator).items()} | {
        "spark.kubernetes.driverEnv.AWS_ENDPOINT_URL": s3.environment["AWS_ENDPOINT_URL"],
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.kubernetes.driver.master": kubelet.url,
        "spark.kubernetes.authenticate.driver.mounted.oauthTokenFile": str(token),
        "spark.kubernetes.authenticate.driver.mounted.caCertFile": str(token),
    }
    command = [*(here(each, place, kubelet) for each in arguments(operator)), "--until-idle"]
    submit = [
        kubelet.image.directory / "opt/spark/bin/spark-submit",
        "--master",
        f"k8s://{kubelet.url}",
        "--deploy-mode",
        "cluster",
        "--name",
        "words",
        *(part for key, value in given.items() for part in ("--conf", f"{key}={value}")),
        "local:///opt/penstock/__main__.py",
        *command,
    ]

    def submitted():
        """The Pod that it makes."""
        before = set(kubelet.resources["pods"])
        done = subprocess.run(submit, env=kubelet.image.environment, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr[-3000:]
        [name] = {n for n in set(kubelet.resources["pods"]) - before if n.endswith("-driver")}
        return name

    def phase(name):
        return kubelet.resources["pods"][name]["status"]["phase"]

    first = submitted()
    await_batches(place, 2, lambda: phase(first) in ("Pending", "Running"))
    kubelet.kill(first)
    second = submitted()
    deadline = time.monotonic() + PATIENCE_S
    while phase(second) != "Succeeded":
        assert phase(second) != "Failed", kubelet.log(second).read_text()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.2)
    check(place, kubelet)

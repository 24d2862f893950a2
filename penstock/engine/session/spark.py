"""Starting Spark sessions. Spark's output goes to a log file, and its workers run this Python."""

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from logging import NullHandler, getLogger
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZipFile

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.sql import SparkSession

import penstock
from penstock.engine.session.checkpoint import DISK, MANAGER
from penstock.engine.session.classes import sharing
from penstock.engine.session.descendants import descendants, kill_all
from penstock.engine.session.java import java_home
from penstock.engine.session.memory import collector
from penstock.engine.session.versions import installed, refuse_others
from penstock.errors import ClusterError, ConfigurationError
from penstock.masked import SECRETS
from penstock.storage import durable
from penstock.storage.place import make_of_user

MODULE_LIMIT = 50 * 2**20
CONNECT_S = 5.0
"""Seconds for a master to accept a connection."""
UNRESPONSIVE = b"All masters are unresponsive"
"""Spark's log message if no master has accepted the application within a minute."""

DYING_S = 2.0
"""Seconds to wait for the exit status of a process whose connections were lost."""

_LOADED: set[Path] = set()
"""The jars, besides Spark's own, with which this process's JVM was started."""

LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.append = true
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
logger.late.name = {triggers}
logger.late.level = error
logger.state.name = {state_server}
logger.state.level = error
"""
"""Log4j's configuration. It leaves out warnings that may come with every micro-batch: that one took longer than the trigger's
interval, and that there is no page yet."""

SIMPLIFIED = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
STREAMING = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 << 20),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # other readers do not take Spark's default type for UTC
    SIMPLIFIED: "true",
}
"""Settings that queries need. They can be set in a running session."""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
LAUNCHING = "-Djdk.lang.Process.launchMechanism=VFORK" if sys.platform == "linux" else ""
"""Hadoop starts a program to set a file's mode. With this option, Java does not start a helper process for it first."""
COMPILING = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Java optimises a method fully only after ten times as many calls as by default, so that it spends no time on methods that are
used only at the start.
"""
OWN = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": "penstock.engine.session.daemon",
    "spark.redaction.regex": SECRETS,
}


def start_session(
    name: str, master: str, log: BinaryIO, conf: Mapping[str, str], archives: tuple[str, ...] = (), jars: Sequence[Path] = ()
) -> SparkSession:
    """Start a Spark session. Its output, and that of its workers, goes to a log file.

    Args:
        log: an open file; the JVM and its workers inherit it, so a lock on it is held until they have ended.
        archives: packed Python environments for the executors.
        jars: the jars that Spark needs besides its own.

    Raises:
        JavaNotFoundError: there is no Java that Spark supports.
        ClusterError: the master cannot be reached.
        ConfigurationError: Spark's Java part has another version than PySpark.
    """
    _check_master(master)
    java = java_home()
    os.environ["JAVA_HOME"] = str(java)
    getLogger("py4j").addHandler(NullHandler())  # a lost connection is reported by an error of our own
    for logger in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):  # they write to the terminal
        getLogger(logger).disabled = True
    path = Path(log.name).absolute()
    logging = path.with_name("log4j2.properties")
    loggers = {"triggers": installed().triggers, "state_server": installed().state_server}
    durable.write(logging, LOGGING.format(path=_as_property(path), **loggers), kept="no")
    _renew_jvm(jars)
    settings = SparkConf(loadDefaults=True).setAppName(name).setMaster(master)
    own = f"-Dlog4j2.configurationFile={logging.as_uri()}"
    if jars:
        settings.set("spark.jars", ",".join(map(str, jars)))
    if archives:
        settings.set("spark.archives", ",".join(f"{archive}#environment" for archive in archives))
        os.environ["PYSPARK_PYTHON"] = "./environment/bin/python"
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Shuffle files contain events, so they go to a private directory; on a cluster, its configuration says where.
    scratch = {"spark.local.dir": str(make_of_user())} if master.startswith("local") else {}
    for key, value in {**scratch, **STREAMING, **OWN, **conf}.items():
        settings.set(key, value)
    user_options = settings.get(JAVA_OPTIONS, "") or ""
    heap, defaults = settings.get("spark.driver.memory", "1g") or "", settings.get(DEFAULT_JAVA_OPTIONS, "") or ""
    collecting = collector(master, heap, f"{user_options} {defaults}")
    own = f"{own} {LAUNCHING} {COMPILING} {collecting} {sharing(java, user_options)}"
    settings.set(JAVA_OPTIONS, f"{own} {user_options}")  # the last of equal options counts
    children_before, logged = set(descendants()), path.stat().st_size
    try:
        with output_to(log), sheltered():
            spark = SparkSession.builder.config(conf=settings).getOrCreate()
    except BaseException as error:
        reason = _reason(error)  # read before the kill: the text comes from the JVM
        kill_all(set(descendants()) - children_before)  # a JVM that has started in part would outlive this process
        SparkContext._gateway = SparkContext._jvm = None
        if not isinstance(error, Exception):
            raise
        if UNRESPONSIVE in path.read_bytes()[logged:]:
            raise ClusterError(
                f"The server at {master} did not accept the application: it is no Spark master, or one of another version than "
                f"{installed().version} (its page says which): pip install pyspark of that version. {path} has the details."
            ) from error
        raise ClusterError(
            f"Spark could not start on master {master} ({reason}): check the address, and what was set with --conf; {path} has "
            "the reason."
        ) from error
    vars(spark.sparkContext._accumulatorServer).update(handle_error=_say_nothing)
    try:
        refuse_others(spark.version)
    except ConfigurationError:
        spark.stop()
        raise
    spark.sparkContext.environment.update(_of_all_workers(spark))
    return spark


def _reason(error: BaseException) -> str:
    try:
        return str(error).strip().splitlines()[0]
    except (IndexError, Py4JError):  # the error has no text, or its JVM has died
        return type(error).__name__


def _say_nothing(request: Any, address: Any) -> None:
    """Ignore a lost connection to Spark's accumulators: code that needs it raises its own error."""


def death_of_spark() -> str | None:
    """Return how this process's JVM has died, in words; None while it lives, or if there is none."""
    process = getattr(SparkContext._gateway, "proc", None)
    deadline = time.monotonic() + DYING_S
    while process is not None and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if process is None or process.returncode is None:
        return None
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    status = process.returncode
    if status == -signal.SIGKILL:
        return "it was killed: by the system for want of memory, or by somebody"
    return f"it was ended by signal {-status}" if status < 0 else f"it exited with status {status}"


def _as_property(path: Path) -> str:
    """Return a path escaped for a Java properties file, and for Log4j's substitution of variables."""
    units = str(path).replace("\\", "\\\\").replace("\n", "\\n").encode("utf-16-be")
    letters = (int.from_bytes(units[place : place + 2], "big") for place in range(0, len(units), 2))
    return "".join(chr(unit) if unit < 128 else f"\\u{unit:04x}" for unit in letters).replace("${", "$${")


def _check_master(master: str) -> None:
    """Check the address of a master, which Spark itself would try for a minute.

    Raises:
        ClusterError: the address has no form that Spark knows, or nothing listens there.
    """
    if re.fullmatch(r"local(\[(\d+|\*)(, *\d+)?\])?|local-cluster\[.*\]|yarn|k8s://.+", master):
        return
    if not master.startswith("spark://"):
        raise ClusterError(
            f"--master {master} is no address that Spark knows: write local[*], local[2], spark://HOST:PORT, yarn or k8s://..."
        )
    places = [place.rpartition(":") for place in master.removeprefix("spark://").split(",")]
    for host, _, port in places:
        try:
            with socket.create_connection((host, int(port)), timeout=CONNECT_S):
                return
        except ValueError:
            raise ClusterError(f"--master {master} has no port: write spark://HOST:PORT; the port is mostly 7077.") from None
        except OSError:
            continue
    raise ClusterError(f"Nothing answers at {master}: start a master there (see the how-to on clusters), or correct --master.")


def settle(spark: SparkSession, partitions: int | None) -> int:
    """Set a session's number of shuffle partitions, and return it.

    Args:
        partitions: the number, or None for the cluster's parallelism.
    """
    chosen = partitions or spark.sparkContext.defaultParallelism
    spark.conf.set("spark.sql.shuffle.partitions", str(chosen))
    return chosen


def write_on_disk(spark: SparkSession) -> None:
    """Set how Spark creates checkpoint files to the way that is fastest on a local disk, unless it is configured.

    Does nothing if the file system class is not that of `DISK`: the JVM keeps the class of an earlier session.
    """
    jvm = spark._jvm
    assert jvm is not None
    disk = jvm.org.apache.hadoop.fs.Path("file:///").getFileSystem(spark._jsc.hadoopConfiguration())
    if disk.getClass().getName() in DISK.values():
        spark.conf.set(MANAGER, str(spark.conf.get(MANAGER, installed().checkpoint_manager)))


def refuse_session(spark: object) -> None:
    """Check that a run can use a session that a user has started.

    Raises:
        ConfigurationError: the session has another version than PySpark, or is one of Spark Connect.
    """
    if not isinstance(spark, SparkSession):
        raise ConfigurationError(
            "The session that was given is of Spark Connect, through which a run cannot be driven: give it a session of Spark "
            "itself, or none, with --master."
        )
    refuse_others(spark.version)


def _of_all_workers(spark: SparkSession) -> dict[str, str]:
    """Return variables that Spark sets for Python functions of some kinds only. It starts a daemon and workers for each
    environment, so that a query with two kinds would have two of each: all functions get these variables.
    """
    simplified = spark.conf.get(SIMPLIFIED, "true") == "true"
    return {"SPARK_CONNECT_LOCAL_URL": ""} | ({"SPARK_SIMPLIFIED_TRACEBACK": "1"} if simplified else {})


@contextmanager
def beside(spark: SparkSession) -> Iterator[SparkSession]:
    """Within the block, provide a clone of a session that a user has started, with its settings, views and functions. The
    user's session stays as it is, and several runs may use it at the same time.
    """
    own = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    for name, value in STREAMING.items():
        own.conf.set(name, value)
    environment = spark.sparkContext.environment
    added = {name: value for name, value in _of_all_workers(own).items() if name not in environment}
    environment.update(added)
    try:
        yield own
    finally:
        for name in added:
            environment.pop(name, None)
        # The method `toDF` of RDDs uses the session that was made last; give it back to the user's.
        vars(sys.modules[SparkSession.__module__])["_monkey_patch_RDD"](spark)


@contextmanager
def having(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Within the block, a session has other settings. Their former values are restored afterwards."""
    former = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value_before in former.items():
            if value_before is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value_before)


def ship(spark: SparkSession, module: str, staging: Path, *, keep: bool) -> None:
    """Send an application's directory of Python files, and penstock itself, to the executors.

    Args:
        keep: whether to keep archives of earlier runs in this session, which Spark serves as long as the session lives.
    """
    source = Path(sys.modules[module].__file__ or "").parent
    packages = [
        path
        for path in source.iterdir()
        if path.name != "penstock" and (path.suffix == ".py" or (path / "__init__.py").exists())
    ]
    files = [file for path in packages for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]
    if sum(file.stat().st_size for file in files) > MODULE_LIMIT:
        raise ConfigurationError(
            f"{source} holds more than {MODULE_LIMIT >> 20} MB of Python, all of which would be sent to the executors: "
            "move the application to a directory of its own."
        )
    home = Path(penstock.__file__).parent
    contents = {str(file.relative_to(source)): file.read_bytes() for file in files}
    contents |= {str(Path("penstock") / file.relative_to(home)): file.read_bytes() for file in home.rglob("*.py")}
    digest = sha256(repr((str(staging), sorted(contents.items()))).encode()).hexdigest()[:16]
    archive = staging / f"application-{digest}.zip"  # a session accepts a file name only once
    for old in staging.glob("application-*.zip"):
        if old != archive and not keep:
            old.unlink()
    if not archive.exists():
        draft = archive.with_suffix(".draft")
        with durable.private(draft, "wb") as file, ZipFile(file, "w") as zipped:
            for name, content in contents.items():
                zipped.writestr(name, content)
        draft.replace(archive)
    spark.sparkContext.addPyFile(archive.as_uri())


def _renew_jvm(jars: Sequence[Path]) -> None:
    """End this process's JVM if it lacks some jars, because its class path cannot change after its start."""
    gateway = SparkContext._gateway
    if gateway is not None and not _LOADED.issuperset(jars):
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        gateway.proc.stdin.close()
        gateway.proc.wait()
    if SparkContext._gateway is None:
        _LOADED.clear()
        _LOADED.update(jars)


@contextmanager
def sheltered() -> Iterator[None]:
    """Within the block, a JVM that PySpark starts is made to ignore all signals to stop for good, not only Ctrl-C.

    Service managers, `timeout` and CI runners signal the whole process group, but Spark must outlive the driver's last
    micro-batch.
    """

    def ignore() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def start(command: Any, **how: Any) -> Any:
        return plain(command, **{**how, "preexec_fn": ignore})

    plain = vars(java_gateway)["Popen"]
    vars(java_gateway)["Popen"] = start
    try:
        yield
    finally:
        vars(java_gateway)["Popen"] = plain


@contextmanager
def output_to(file: BinaryIO) -> Iterator[None]:
    """Within the block, the output of this process and its children goes to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(number) for number in (1, 2)]
    try:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, number)
            os.close(copy)

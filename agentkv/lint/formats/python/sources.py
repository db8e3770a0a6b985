"""Library calls whose result varies (or does not): clocks, chance, the host, the deployment."""

from __future__ import annotations

import re

from agentkv.lint.formats.python.facts import Facts, fact


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CLOCKS = _words(
    """datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today time.time time.time_ns
    time.strftime time.ctime time.asctime time.localtime time.gmtime time.monotonic
    time.perf_counter time.process_time pendulum.now arrow.now arrow.utcnow django.utils.timezone.now
    django.utils.timezone.localtime pandas.Timestamp.now pandas.Timestamp.utcnow whenever.Instant.now
    datetime.now datetime.utcnow dateutil.utils.today maya.now tzlocal.now timezone.now"""
)
_DATES = _words(
    """datetime.date.today pendulum.today pendulum.today arrow.today pandas.Timestamp.today
    date.today django.utils.timezone.localdate dateutil.utils.today"""
)
_IDS = _words(
    """uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7 secrets.token_hex secrets.token_urlsafe
    secrets.token_bytes secrets.randbits os.urandom nanoid.generate shortuuid.uuid
    shortuuid.ShortUUID ulid.new ulid.ULID bson.ObjectId xid.XID cuid.cuid random.getrandbits
    random.randbytes secrets.SystemRandom uuid.uuid8 ksuid.ksuid"""
)
_CHANCE = _words(
    """random.choice random.randint random.random random.uniform random.randrange random.gauss
    secrets.choice secrets.randbelow numpy.random.choice numpy.random.randint numpy.random.rand
    random.triangular random.normalvariate numpy.random.random"""
)
_SHUFFLES = _words(
    """random.sample random.choices random.shuffle numpy.random.permutation numpy.random.shuffle
    more_itertools.random_permutation more_itertools.random_combination"""
)
_HOST = _words(
    """os.getpid os.getppid socket.gethostname socket.getfqdn platform.node os.getcwd
    pathlib.Path.cwd os.uname tempfile.mkdtemp tempfile.mkstemp tempfile.NamedTemporaryFile
    tempfile.TemporaryDirectory tempfile.gettempdir tempfile.mktemp os.getlogin getpass.getuser
    threading.get_ident threading.current_thread os.cpu_count psutil.virtual_memory
    psutil.cpu_percent os.getloadavg psutil.disk_usage shutil.disk_usage multiprocessing.current_process
    asyncio.current_task"""
)
_SHARED_HOST = frozenset({"os.cpu_count", "getpass.getuser", "os.getlogin"})
_DEPLOY = _words(
    """os.getenv os.environ.get platform.system platform.python_version platform.platform
    platform.release sys.platform importlib.metadata.version pathlib.Path.home os.path.expanduser
    decouple.config environ.Env dotenv.get_key os.environ sys.version platform.machine
    importlib.metadata.metadata"""
)
_BUILD = ("importlib.resources.", "pkgutil.get_data", "pkg_resources.", "inspect.getsource")
_LISTINGS = _words(
    """os.listdir os.scandir os.walk glob.glob glob.iglob pathlib.Path.glob pathlib.Path.rglob
    pathlib.Path.iterdir"""
)
_SUBPROCESS = (
    "subprocess.run",
    "subprocess.check_output",
    "subprocess.getoutput",
    "os.popen",
    "subprocess.Popen",
    "subprocess.getstatusoutput",
    "asyncio.create_subprocess_exec",
    "asyncio.create_subprocess_shell",
)
_LOCALE = _words(
    """locale.format_string locale.currency locale.str babel.dates.format_date
    babel.dates.format_datetime babel.numbers.format_decimal babel.numbers.format_currency
    calendar.month_name calendar.day_name"""
)

_FINE = re.compile(r"%[-#]?[HIMSfpcXsTrR]|HH|mm:|ss|%-?k")
_MINUTES = re.compile(r"%[-#]?[MSfcXsTrR]|mm|ss")
_LOCAL = re.compile(r"%[-#]?[aAbBcxXp]")


def of_call(dotted: str) -> Facts | None:
    """Facts of a library call's result, None where the library is not known for anything."""
    if dotted in _CLOCKS:
        return fact("call", f"{_short(dotted)}()", "clock")
    if dotted in _DATES:
        return fact("call", f"{_short(dotted)}()", "date")
    if dotted in _IDS:
        return fact("call", f"{_short(dotted)}()", "random_id")
    if dotted in _SHUFFLES:
        return fact("call", f"{_short(dotted)}()", "shuffled", "random_content")
    if dotted in _CHANCE:
        return fact("call", f"{_short(dotted)}()", "random_content")
    if dotted in _HOST:
        level = "deploy" if dotted in _SHARED_HOST else "session"
        return fact(level, f"{_short(dotted)}()", "host_state")  # type: ignore[arg-type]
    if dotted in _DEPLOY:
        return fact("deploy", f"{_short(dotted)}")
    if dotted in _LISTINGS:
        return fact("session", f"{_short(dotted)}()", "listing")
    if dotted in _SUBPROCESS:
        return fact("call", f"{_short(dotted)}()", "host_state")
    if dotted in _LOCALE:
        return fact("unknown", f"{_short(dotted)}()", "locale")
    if dotted.startswith(_BUILD):
        return fact("build", f"{_short(dotted)}()")
    if dotted == "concurrent.futures.as_completed" or dotted.endswith("asyncio.as_completed"):
        return fact("turn", "as_completed()", "completion_order")
    return None


def with_format(facts: Facts, pattern: str | None) -> Facts:
    """A clock after `strftime`: what of it is left, a date or a time of day."""
    if not facts.traits & {"clock", "date"} or pattern is None:
        return facts
    if not _FINE.search(pattern):
        return facts.minus("clock").plus("date")
    return facts if _MINUTES.search(pattern) else facts.plus("hour")


def with_locale(facts: Facts, pattern: str | None) -> Facts:
    """After `strftime` where the locale was set: names of days and months come from it."""
    return facts.plus("locale") if pattern and _LOCAL.search(pattern) else facts


def _short(dotted: str) -> str:
    parts = dotted.split(".")
    return ".".join(parts[-2:])

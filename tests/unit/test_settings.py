"""Settings: where they come from, and how their faults are told."""

from pathlib import Path

import pytest

from infra.settings import SETTINGS, load
from infra.settings.environment import add_to_environment
from infra.settings.secrets import secrets_of
from infra.settings.wire import from_json, to_json
from jobs.errors import BadSetting
from jobs.pools import Pool

pytestmark = pytest.mark.unit


def faults_of(**arguments) -> tuple[str, ...]:
    with pytest.raises(BadSetting) as caught:
        load(**{"environ": {}, **arguments})
    return caught.value.faults


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "nightmill.toml") -> Path:
        file = tmp_path / name
        file.write_text(text)
        return file

    return write


def test_without_any_source_every_value_is_its_default():
    settings = load(environ={}, home=Path("/data"))
    found = {s.name: getattr(settings, s.name) for s in SETTINGS if s.type != "path"}
    assert found == {s.name: s.default for s in SETTINGS if s.type != "path"}


def test_the_environment_goes_before_the_file_and_the_file_before_the_default(write, tmp_path):
    write("lease_s = 60\nbeat_s = 4\n")
    settings = load(environ={"NIGHTMILL_LEASE_S": "90", "NIGHTMILL_HOME": str(tmp_path)})
    assert (settings.lease_s, settings.beat_s, settings.task_open_s) == (90.0, 4.0, 60.0)


def test_the_command_line_says_where_home_is_before_all_others(tmp_path):
    settings = load(environ={"NIGHTMILL_HOME": "/elsewhere"}, home=tmp_path)
    assert settings.home == tmp_path


def test_a_named_file_is_read_instead_of_the_one_in_home(write, tmp_path):
    write("tenant = 'in-home'\n")
    named = write("tenant = 'named'\n", "other.toml")
    environ = {"NIGHTMILL_HOME": str(tmp_path), "NIGHTMILL_CONFIG": str(named)}
    assert load(environ=environ).tenant == "named"


def test_a_home_in_a_named_file_is_relative_to_that_file(write, tmp_path):
    assert load(environ={}, config=write("home = 'data'\n", "other.toml")).home == tmp_path / "data"


def test_home_cannot_be_set_in_the_file_that_was_found_through_it(write, tmp_path):
    file = write("home = 'data'\n")
    assert faults_of(home=tmp_path) == (f"home: it cannot be set in {file}, which was found through it",)


def test_a_relative_home_is_made_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    settings = load(environ={"NIGHTMILL_HOME": ".nightmill"})
    assert settings.home == tmp_path / ".nightmill"
    assert settings.log_file == tmp_path / ".nightmill/logs/nightmill.log"


def test_all_faults_of_all_sources_are_told_at_once(write):
    file = write('leese_s = 3\nbeat_s = "2"\ncurrency = "UDS"\nkv_cache_gib = 1.5\n[engine]\nx = 1\n', "bad.toml")
    environ = {
        "NIGHTMILL_HOEM": "x",
        "NIGHTMILL_LOG_LEVEL": "loud",
        "NIGHTMILL_TASK_MAX_ROWS": "0",
        "NIGHTMILL_TASK_SECONDS": "soon",
        "NIGHTMILL_TENANT": " ",
        "NIGHTMILL_TOPIC_PREFIX": "a b",
    }
    assert faults_of(environ=environ, config=file) == (
        "the environment variable NIGHTMILL_HOEM is not known; did you mean NIGHTMILL_HOME?",
        "NIGHTMILL_LOG_LEVEL: 'loud' is not one of debug, info, warning, error",
        "NIGHTMILL_TASK_MAX_ROWS: 0 rows is not between 1 and 1000000",
        "NIGHTMILL_TASK_SECONDS: 'soon' is not a number",
        "NIGHTMILL_TENANT: it is empty",
        "NIGHTMILL_TOPIC_PREFIX: 'a b' is not made of letters, digits, '.', '_' and '-' (at most 100)",
        f"{file}: the setting leese_s is not known; did you mean lease_s?",
        f"{file}: beat_s: '2' is not a number",
        f"{file}: currency: 'UDS' is no currency code of ISO 4217, such as USD",
        f"{file}: kv_cache_gib: 1.5 is not an integer",
        f"{file}: the setting engine is not known",
    )


def test_the_sentence_of_the_error_holds_every_fault():
    with pytest.raises(BadSetting, match=r"NIGHTMILL_BEAT_S: .* NIGHTMILL_LEASE_S: "):
        load(environ={"NIGHTMILL_LEASE_S": "x", "NIGHTMILL_BEAT_S": "y"})


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e9"])
def test_a_number_that_is_none_or_out_of_range_is_refused(text):
    assert len(faults_of(environ={"NIGHTMILL_HANG_TIMEOUT_S": text})) == 1


def test_a_lease_must_last_three_beats():
    assert faults_of(environ={"NIGHTMILL_BEAT_S": "11"}) == (
        "lease_s: 30 seconds is less than 3 beats of 11 seconds (beat_s)",
    )


def test_a_database_s_url_is_told_to_nobody():
    secret = {"NIGHTMILL_DATABASE_URL": "mysql://ann:secret@host/name"}
    assert faults_of(environ=secret) == ("NIGHTMILL_DATABASE_URL: it does not begin with postgresql://",)
    settings = load(environ={"NIGHTMILL_DATABASE_URL": "postgresql://ann:secret@host/name"})
    assert settings.database_url == "postgresql://ann:secret@host/name"
    assert "secret" not in repr(settings)


def test_true_is_no_number(write):
    assert faults_of(config=write("task_max_rows = true\n"))[0].endswith("task_max_rows: True is not an integer")


def test_a_file_that_is_not_toml_is_named_with_the_place(write):
    assert "is not TOML: " in faults_of(config=write("lease_s = \n"))[0]


def test_a_named_file_that_is_not_there_is_a_fault(tmp_path):
    assert faults_of(config=tmp_path / "none.toml") == (f"{tmp_path / 'none.toml'}: No such file or directory",)


def test_variables_for_tests_are_no_settings():
    assert load(environ={"NIGHTMILL_TEST_KILL_AT": "commit"}).tenant == "default"


def test_integers_may_be_written_with_underscores():
    assert load(environ={"NIGHTMILL_SEGMENT_ROWS": "1_000"}).segment_rows == 1000


# ---- pools --------------------------------------------------------------------------------------


def test_pools_are_read_with_what_was_left_out(write):
    file = write(
        "[pools.batch]\nmodel = 'smollm2'\nengine_args = { max_num_seqs = 64 }\nprice_per_accelerator_hour = 2.5\n"
        "[pools.big]\nmodel = 'm70'\nengine_args = { tensor_parallel_size = 4 }\nmin_workers = 2\nnum_cpus = 3\n",
        "pools.toml",
    )
    assert load(environ={}, config=file).pools == (
        Pool(
            name="batch",
            model="smollm2",
            engine_args={"max_num_seqs": 64},
            price_per_accelerator_hour_micro=2_500_000,
        ),
        Pool(
            name="big",
            model="m70",
            engine_args={"tensor_parallel_size": 4},
            min_workers=2,
            max_workers=2,
            accelerators=4,
            num_cpus=3.0,
        ),
    )


def test_all_faults_of_all_pools_are_told_at_once(write):
    file = write(
        "tenent = 'x'\n[pools.dead]\nmodel = 'm'\n[pools.run-x]\nmodel = 'm'\n[pools.a]\nmodle = 'm'\n"
        "[pools.b]\nmodel = ' '\nmax_workers = 1.5\nnum_cpus = 0\n[pools.c]\nmodel = 'm'\nmin_workers = 3\n"
        "max_workers = 2\nengine_args = { tensor_parallel_size = 2 }\naccelerators = 3\n",
        "pools.toml",
    )
    name = "it cannot be a pool's name (a-z, 0-9, '_' and '-', at most 63; not submit, dead or run-…)"
    assert faults_of(config=file) == (
        f"{file}: the setting tenent is not known; did you mean tenant?",
        f"{file}: pools.dead: {name}",
        f"{file}: pools.run-x: {name}",
        f"{file}: pools.a.model: it is missing",
        f"{file}: pools.a.modle: it is not known; did you mean model?",
        f"{file}: pools.b.model: it is empty",
        f"{file}: pools.b.max_workers: 1.5 is not an integer",
        f"{file}: pools.b.num_cpus: 0 is not 0.01 or more",
        f"{file}: pools.c.min_workers: 3 is more than max_workers, 2",
        f"{file}: pools.c.accelerators: 3 is not tensor × pipeline parallel size, 2",
    )


def test_what_a_pool_does_with_requests_is_read(write):
    file = write(
        "[pools.talk]\nmodel = 'm'\npurpose = 'interactive'\nlends = true\nkept_free = 0.5\n"
        "[pools.both]\nmodel = 'm'\nrequests = true\n",
        "pools.toml",
    )
    assert load(environ={}, config=file).pools == (
        Pool(name="talk", model="m", purpose="interactive", lends=True, kept_free=0.5),
        Pool(name="both", model="m", requests=True),
    )


def test_what_does_not_go_together_with_requests_is_refused(write):
    file = write(
        "[pools.a]\nmodel = 'm'\nlends = true\n[pools.b]\nmodel = 'm'\npurpose = 'interactive'\nrequests = false\n"
        "[pools.c]\nmodel = 'm'\nkept_free = 1.5\nrequests = 1\n",
        "pools.toml",
    )
    assert faults_of(config=file) == (
        f"{file}: pools.a.lends: only a pool with purpose interactive lends; this one has batch jobs of its own",
        f"{file}: pools.b.requests: a pool with purpose interactive takes nothing else",
        f"{file}: pools.c.kept_free: 1.5 is more than 1",
        f"{file}: pools.c.requests: 1 is not a boolean",
    )


def test_pools_that_are_no_table_are_refused(write):
    file = write("pools = 3\n", "pools.toml")
    assert faults_of(config=file) == (f"{file}: pools: it is no table; write [pools.NAME]",)


def test_settings_are_the_same_after_their_way_to_another_process(write):
    file = write("lease_s = 60\n[pools.batch]\nmodel = 'm'\nengine_args = { a = [1, 'x'] }\n", "pools.toml")
    settings = load(environ={}, config=file)
    assert from_json(to_json(settings)) == settings


# ---- lists ------------------------------------------------------------------------------------------


def test_texts_are_a_list_in_the_file_and_parted_by_commas_in_the_environment(write):
    file = write('ingress_tenants = ["acme", "globex.eu"]\ningress_inputs = []\n')
    settings = load(environ={"NIGHTMILL_INGRESS_OUTPUTS": "s3://a/, file:///srv/out"}, config=file)
    found = settings.ingress_tenants, settings.ingress_inputs, settings.ingress_outputs
    assert found == (("acme", "globex.eu"), (), ("s3://a/", "file:///srv/out"))
    assert from_json(to_json(settings)) == settings


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('ingress_tenants = "acme"', "ingress_tenants: 'acme' is no list of texts"),
        ("ingress_tenants = [1]", "ingress_tenants: [1] is no list of texts"),
        ('ingress_tenants = ["a/b"]', "ingress_tenants: 'a/b' is no tenant's name"),
        ('ingress_tenants = ["a", "a"]', "ingress_tenants: one of its values is there twice"),
        ('ingress_inputs = ["/srv"]', "ingress_inputs: '/srv' is no URI"),
        ('ingress_outputs = [""]', "ingress_outputs: '' is no URI"),
        ('private_hosts = ["http://a"]', "private_hosts: 'http://a' is no host"),
    ],
)
def test_a_list_that_cannot_be_is_told(write, line, fault):
    file = write(line)
    assert faults_of(config=file) == (f"{file}: {fault}",)


# ---- environment_file -------------------------------------------------------------------------------


def test_the_environment_file_adds_what_is_not_there(write):
    file = write("# a comment\nexport PGPASSWORD='a b#c'\nRAY_AUTH_MODE=token\nHOME=/elsewhere\nEMPTY=\n", "env")
    environ = {"HOME": "/here"}
    add_to_environment(file, environ)
    assert environ == {"HOME": "/here", "PGPASSWORD": "a b#c", "RAY_AUTH_MODE": "token", "EMPTY": ""}


@pytest.mark.parametrize("line", ["PASSWORD secret", "NAME='secret", "A=secret word", "1A=secret"])
def test_a_line_that_is_none_is_named_by_its_number_and_not_shown(write, line):
    file = write(f"A=1\n{line}\n", "env")
    with pytest.raises(BadSetting) as caught:
        add_to_environment(file, {})
    assert caught.value.faults == (f"environment_file: line 2 of {file} is not NAME=value",)


def test_an_environment_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(BadSetting, match=r"environment_file: .*/env: No such file"):
        add_to_environment(tmp_path / "env", {})


# ---- secrets --------------------------------------------------------------------------------------


def test_secrets_are_passwords_and_of_a_url_the_password_alone_as_written_and_as_meant():
    given = {
        "NIGHTMILL_DATABASE_URL": "postgresql://me:sec%40ret@db.example/nightmill",
        "NIGHTMILL_KAFKA_PASSWORD": "broker-word",
        "NIGHTMILL_KAFKA_KEY_PASSWORD": "abc",
    }
    assert secrets_of(load(environ=given), {}) == ("broker-word", "sec%40ret", "sec@ret")


def test_without_secrets_there_is_nothing_to_hide():
    settings = load(environ={"NIGHTMILL_DATABASE_URL": "postgresql://me@db.example/nightmill"})
    assert secrets_of(settings, {"PGUSER": "somebody"}) == ()
    assert secrets_of(settings, {"PGPASSWORD": "somebody's"}) == ("somebody's",)

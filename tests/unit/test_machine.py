"""What a record says about the machine, and what it must never say."""

from harness.version import harness_version
from harness.worker import machine


def test_variables_that_matter_are_recorded() -> None:
    environ = {"OMP_WAIT_POLICY": "PASSIVE", "NCCL_DEBUG": "INFO", "LD_LIBRARY_PATH": "/opt/lib", "SLURM_JOB_ID": "7"}
    assert machine.relevant_variables(environ) == environ


def test_everything_else_is_nobodys_business() -> None:
    assert machine.relevant_variables({"HOME": "/home/me", "EDITOR": "vi", "AWS_REGION": "x", "SLURM_JWT": "s"}) == {}


def test_secrets_are_never_recorded_even_under_a_name_that_matters() -> None:
    tokens = ["NCCL_AUTH_TOKEN", "TF_API_KEY", "OMPI_PASSWORD", "CUDA_CREDENTIALS", "TF_VAR_cluster", "TF_CLI_ARGS"]
    logins = ["GRPC_PASS", "MPICH_PASS_1", "UCX_PASSPHRASE", "TF_DB_PWD", "NVIDIA_CRED", "HOROVOD_LOGIN"]
    assert machine.relevant_variables(dict.fromkeys([*tokens, *logins], "s")) == {}


def test_secrets_are_known_by_their_values_too() -> None:
    values = (
        *("Server=x;Password=hunter2", "--token=abc", "Signature=abc", "api-key: abc", "Bearer abcdef"),
        *(
            "ghp_0123456789abcdef",
            "hf_0123456789abcdef",
            "AKIA0123456789ABCDEF",
            "eyJhbGciOiJIUzI1NiJ9.e30.x",
            "-----BEGIN KEY",
        ),
    )
    for value in values:
        assert machine.relevant_variables({"TF_CONN": value}) == {}, value
    harmless = {
        "TF_XLA_FLAGS": "--tf_xla_auto_jit=2",
        "NCCL_ALGO": "Ring",
        "UCX_TLS": "rc,sm",
        "XLA_FLAGS": "--xla_dump_to=/tmp/x",
    }
    assert machine.relevant_variables(harmless) == dict(sorted(harmless.items()))


def test_a_name_that_only_resembles_that_of_a_secret_is_recorded() -> None:
    environ = {"FI_PSM3_CREDITS": "64", "FI_PASSIVE": "0", "NCCL_CACHE_BYPASS": "1", "TF_CONFIG": "{}"}
    assert machine.relevant_variables(environ) == dict(sorted(environ.items()))


def test_users_and_passwords_are_cut_out_of_addresses() -> None:
    recorded = machine.relevant_variables({"TF_CONFIG_URL": "https://me:hunter2@example.org/x"})
    assert recorded == {"TF_CONFIG_URL": "https://example.org/x"}


def test_the_machine_is_described() -> None:
    described = machine.describe()
    assert described["cores"] >= described["usable_cores"] >= 1
    assert all(described[key] for key in ("host", "cpu", "os", "kernel", "memory_bytes"))
    assert harness_version()["version"]

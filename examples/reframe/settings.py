"""A ReFrame configuration for one machine without a batch system. Sites have their own, which serves as well."""

site_configuration = {
    "systems": [
        {
            "name": "workstation",
            "descr": "the machine that ReFrame runs on",
            "hostnames": [".*"],
            "max_local_jobs": 1,  # two measurements at once would slow each other down
            "partitions": [
                {"name": "default", "scheduler": "local", "launcher": "local", "environs": ["shared"], "max_jobs": 1}
            ],
        }
    ],
    # Compute threads that wait by spinning lose most of their time on a machine that does other things too.
    "environments": [{"name": "shared", "env_vars": [["OMP_WAIT_POLICY", "PASSIVE"]]}],
}

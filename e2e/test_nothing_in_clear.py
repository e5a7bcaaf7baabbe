"""Between the pods of a job nothing is in clear, and who has no certificate of the job gets no answer: seen from a pod beside the job's."""

from __future__ import annotations

import json

from e2e.harness.jobs import CountingJob
from e2e.harness.network import listening

KNOCK = """
import json, socket, ssl, sys
host, ports, folder = sys.argv[1], json.loads(sys.argv[2]), "/etc/statefulspark/tls"
PREFACE = b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + b"\\0\\0\\0\\4\\0\\0\\0\\0\\0"

def answer(port, wrap):
    try:
        with socket.create_connection((host, port), timeout=5) as plain:
            with wrap(plain) as connection:
                connection.settimeout(5)
                connection.sendall(PREFACE)
                return len(connection.recv(4096))
    except OSError as error:
        return type(error).__name__

def tls(with_certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(f"{folder}/ca.crt")
    context.set_alpn_protocols(["h2"])
    if with_certificate:
        context.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
    return lambda plain: context.wrap_socket(plain, server_hostname="job.statefulspark.internal")

for port in ports:
    print(json.dumps({"port": port, "clear": answer(port, lambda plain: plain), "stranger": answer(port, tls(False)), "own": answer(port, tls(True))}))
"""
"""What a port answers to the greeting of gRPC: in clear, over TLS without a certificate, and with the job's."""


def test_nothing_in_clear(job: CountingJob) -> None:
    """Flight, the API and Spark's own ports; the job runs with all that, and the operator verifies whom it talks to."""
    flight = 0
    for pod in [*job.pods("driver"), *job.pods("executor")]:
        name, address = pod["metadata"]["name"], pod["status"]["podIP"]
        ports = listening(job.kubectl, name)
        assert ports
        for line in job.kubectl.ok("exec", job.driver, "--", "python", "-c", KNOCK, address, json.dumps(ports)).splitlines():
            found = json.loads(line)
            assert not isinstance(found["clear"], int) or found["clear"] == 0, f"{name} answers in clear: {line}"
            if found["port"] == 8480:  # HTTP/1.1 over TLS, for whoever trusts the authority; the token is asked for later
                continue
            assert not isinstance(found["stranger"], int) or found["stranger"] == 0, f"{name} answers a stranger: {line}"
            flight += isinstance(found["own"], int) and found["own"] > 0
    assert flight >= 3, "the coordinator and both slots answer who belongs to the job"
    status = job.kubectl.ok("exec", job.driver, "--", "statefulspark", "status", "--job", job.name, "--output", "json")
    assert json.loads(status)["state"] == "RUNNING"
    settings = job.kubectl.get("secret", f"{job.name}-tls")["data"]
    assert set(settings) == {"ca.crt", "tls.crt", "tls.key"}, "the authority's key is stored nowhere"
    for pod in [*job.pods("driver"), *job.pods("executor")]:
        done = job.kubectl.run("exec", pod["metadata"]["name"], "--", "python", "-c", "open('/etc/statefulspark/tls/ca.key')")
        assert "No such file" in done.stderr, "the authority's key is in no pod"
        held = job.kubectl.run("exec", pod["metadata"]["name"], "--", "python", "-c", "import pip")
        assert "No module named 'pip'" in held.stderr
    policy = job.kubectl.get("networkpolicy", job.driver)
    assert policy["spec"]["podSelector"]["matchLabels"] == {"statefulspark.io/job": job.name}
    job.wait_more(3)
    job.check()

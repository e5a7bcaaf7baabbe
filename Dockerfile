# One Dockerfile, two images: the operator's (no Java, no Spark) and the one in which jobs run.
#   docker build --target operator -t statefulspark-operator .
#   docker build --target job -t statefulspark-job .
# A job's own image adds its files: FROM statefulspark-job, COPY . /opt/job
# What installs is not in what is shipped: pip and the build tools stay in stages of their own, and so do the test hooks. Layers go from what changes
# seldom to what changes often: a change of the code rebuilds the last one only. Every package is the one of the lock file, by hash. No heredocs or
# mounts: the classic builder works too.
# The base is pinned by its digest; docs/operations.md says how to take a newer one.
ARG BASE_IMAGE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

FROM ${BASE_IMAGE} AS installer
# HOME: the root of a build may be read-only elsewhere.
ENV HOME=/tmp PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/installer && python3 -m venv --without-pip /opt/statefulspark
WORKDIR /build

FROM installer AS operator-packages
COPY images/operator.lock ./
RUN /opt/installer/bin/pip --python /opt/statefulspark/bin/python install --require-hashes --requirement operator.lock

FROM installer AS job-packages
COPY images/job.lock ./
RUN /opt/installer/bin/pip --python /opt/statefulspark/bin/python install --require-hashes --requirement job.lock

FROM installer AS connectors
# URL of another repository, if the build cannot reach Maven Central.
ARG MAVEN
COPY runtime/src/statefulspark/connectors connectors
RUN STATEFULSPARK_MAVEN=$MAVEN python3 connectors/jars.py connectors/kafka.lock /opt/connectors

FROM installer AS project
COPY images/build.lock ./
RUN /opt/installer/bin/pip install --require-hashes --requirement build.lock
COPY pyproject.toml README.md LICENSE ./
COPY runtime/src runtime/src
COPY operator/src operator/src
# Below /project lies what goes into /opt/statefulspark: the two packages and their commands, without the hooks by which tests do harm, and compiled:
# pods cannot write there, and each process would compile them again.
RUN /opt/installer/bin/pip wheel --no-deps --no-build-isolation --wheel-dir wheels . \
    && /opt/installer/bin/pip --python /opt/statefulspark/bin/python install --no-deps --no-compile --root /project wheels/*.whl \
    && find /project -path '*/statefulspark/faults' -prune -exec rm -rf {} + \
    && /opt/statefulspark/bin/python -m compileall -q --invalidation-mode unchecked-hash -s /project -p / /project/opt/statefulspark/lib

FROM ${BASE_IMAGE} AS base
# What the base brings to install packages with has no use at run time.
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/* \
    && useradd --uid 10001 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin statefulspark \
    && find / -xdev \( -path '*-packages/pip' -o -path '*-packages/pip-*' -o -path '*-packages/setuptools' -o -path '*-packages/setuptools-*' \
       -o -path '*-packages/wheel' -o -path '*-packages/wheel-*' -o -name ensurepip -o -name python-wheels \) -prune -exec rm -rf {} + \
    && rm -f /usr/local/bin/pip* /usr/local/bin/wheel /usr/bin/pip*
# The root file system may be read-only: whatever is written goes to /tmp, the one folder that must be writable.
ENV VIRTUAL_ENV=/opt/statefulspark PATH=/opt/statefulspark/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ARG VERSION=0.1.0
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="statefulspark"
ENTRYPOINT ["tini", "--", "statefulspark"]

FROM base AS operator
COPY --from=operator-packages /opt/statefulspark /opt/statefulspark
COPY --from=project /project/opt/statefulspark /opt/statefulspark
LABEL org.opencontainers.image.title="statefulspark-operator" \
      org.opencontainers.image.description="Runs, checkpoints, upgrades and rescales stateful PySpark jobs on Kubernetes"
WORKDIR /tmp
USER 10001:10001
EXPOSE 8080 9090 9443
ENTRYPOINT ["tini", "--", "python", "-m", "statefulspark_operator"]

FROM base AS job
# malloc gives back what RocksDB frees: docs/memory.md says how and why.
ENV MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=131072 MALLOC_TRIM_THRESHOLD_=131072
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/*
COPY --from=connectors /opt/connectors /opt/connectors
COPY --from=job-packages /opt/statefulspark /opt/statefulspark
COPY --from=project /project/opt/statefulspark /opt/statefulspark
LABEL org.opencontainers.image.title="statefulspark-job" \
      org.opencontainers.image.description="PySpark with keyed state, timers, checkpoints and savepoints"
ENV STATEFULSPARK_HOME=/tmp/statefulspark-home STATEFULSPARK_CONNECTORS=/opt/connectors
WORKDIR /opt/job
USER 10001:10001
EXPOSE 8480
CMD ["--help"]

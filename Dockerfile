# One Dockerfile, two images: the operator's (no Java, no Spark) and the one in which jobs run.
#   docker build --target operator -t statefulspark-operator .
#   docker build --target job -t statefulspark-job .
# A job's own image adds its files: FROM statefulspark-job, COPY . /opt/job
# Layers go from what changes seldom to what changes often: a change of the code rebuilds the last two only. Every package is the one of
# the lock file, by hash. For reproducible bases give BASE_IMAGE with its digest. No heredocs or mounts: the classic builder works too.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS base
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/* \
    && useradd --uid 10001 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin statefulspark
# The root file system may be read-only: whatever is written goes to /tmp, the one folder that must be writable.
ENV VIRTUAL_ENV=/opt/statefulspark PATH=/opt/statefulspark/bin:$PATH HOME=/tmp \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv $VIRTUAL_ENV
WORKDIR /build
ARG VERSION=0.1.0
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="statefulspark"
ENTRYPOINT ["tini", "--", "statefulspark"]

FROM base AS operator
COPY images/operator.lock ./
RUN pip install --require-hashes --requirement operator.lock
COPY pyproject.toml README.md LICENSE ./
COPY runtime/src runtime/src
COPY operator/src operator/src
RUN pip install --no-deps --no-build-isolation . && rm -rf /build/*
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
COPY images/job.lock ./
RUN pip install --require-hashes --requirement job.lock
COPY pyproject.toml README.md LICENSE ./
COPY runtime/src runtime/src
COPY operator/src operator/src
RUN pip install --no-deps --no-build-isolation . && rm -rf /build/*
LABEL org.opencontainers.image.title="statefulspark-job" \
      org.opencontainers.image.description="PySpark with keyed state, timers, checkpoints and savepoints"
ENV STATEFULSPARK_HOME=/tmp/statefulspark-home
WORKDIR /opt/job
USER 10001:10001
EXPOSE 8480
CMD ["--help"]

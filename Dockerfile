# The image in which jobs run: Spark, Java and the runtime. Build: docker build -t statefulspark .
# Layers go from what changes seldom to what changes often: a change of the code rebuilds the last two only.
ARG BASE_IMAGE=python:3.11-slim-bookworm
FROM ${BASE_IMAGE}

RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home --home-dir /home/spark spark

# The root file system may be read-only: what a run keeps for its commands goes to /tmp, which must be writable.
ENV VIRTUAL_ENV=/opt/statefulspark PATH=/opt/statefulspark/bin:$PATH PYTHONUNBUFFERED=1 STATEFULSPARK_HOME=/tmp/statefulspark-home
RUN python3 -m venv $VIRTUAL_ENV

WORKDIR /build
COPY pyproject.toml requirements.lock ./
# The lock holds every version with its hash; what only the demo and developers need is left out by constraint, not by a second list.
RUN grep -E '^[a-zA-Z0-9]' requirements.lock | sed 's/ *[\\]$//' > constraints.txt \
    && python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' > dependencies.txt \
    && pip install --no-cache-dir --constraint constraints.txt --requirement dependencies.txt

COPY README.md LICENSE ./
COPY runtime/src runtime/src
COPY operator/src operator/src
RUN pip install --no-cache-dir --no-deps . && rm -rf /build/*

LABEL org.opencontainers.image.title="statefulspark" \
      org.opencontainers.image.description="Flink's state model for PySpark streams" \
      org.opencontainers.image.licenses="Apache-2.0"
WORKDIR /home/spark
USER 10001
ENTRYPOINT ["tini", "--", "statefulspark"]
CMD ["--help"]

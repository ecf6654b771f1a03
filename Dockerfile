# The server without anything to build it with, and without a model: that is mounted at /models.
#   docker build -t pagoda .
#   docker run --rm -p 127.0.0.1:8000:8000 -v ~/.cache/pagoda/models:/models:ro pagoda demo
# The only use of the network is apt's. The kernels are chosen when the server starts, so that the
# image runs on every x86-64 processor.
ARG BASE_IMAGE=debian:12
ARG RUNTIME_IMAGE=debian:12-slim

FROM ${BASE_IMAGE} AS build
WORKDIR /build/pagoda
# First what only depends on the list of packages, so that a change of the code keeps this layer.
COPY scripts/setup.sh scripts/lib.sh scripts/
RUN scripts/setup.sh --package && rm -rf /var/lib/apt/lists/*
COPY . .
RUN scripts/package.sh deb

FROM ${RUNTIME_IMAGE}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Pagoda" \
      org.opencontainers.image.description="Inference server for large language models" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# The package names the libraries that it needs. No user of the machine has this number.
RUN --mount=type=bind,from=build,source=/build/pagoda/build/packages,target=/packages \
    apt-get -q update \
    && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends \
         /packages/pagoda_*.deb \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old \
         /var/log/apt /var/log/dpkg.log \
    && groupadd --gid 10001 pagoda \
    && useradd --uid 10001 --gid pagoda --no-create-home --home-dir /var/lib/pagoda \
         --shell /usr/sbin/nologin pagoda \
    && install -d -o pagoda -g pagoda /var/lib/pagoda /models \
    && install -d -o pagoda -g pagoda -m 1777 /kv \
    && ln -s /models /var/lib/pagoda/models

# Another user may be chosen (--user), and the root file system may be read-only: nothing is written
# but below /kv, and that only with a KV tier on disk.
USER 10001:10001
ENV PAGODA_HOST=0.0.0.0 \
    PAGODA_PORT=8000 \
    PAGODA_HOME=/var/lib/pagoda
VOLUME ["/models", "/kv"]
# So that a model is named as it is in the mounted folder.
WORKDIR /models
EXPOSE 8000
STOPSIGNAL SIGTERM
# Another port is chosen by PAGODA_PORT, so that it is known here too. While a model loads it is too
# early to ask; a server that ends its last requests is not healthy any more.
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s --retries=3 \
  CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/$PAGODA_PORT && printf 'GET /health HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3 && read -r -t 4 _ status _ <&3 && [[ $status == 200 ]]"]
ENTRYPOINT ["pagoda", "serve"]
CMD ["demo"]

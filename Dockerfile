# The server with the agents that you name, as a user without rights. See docs/install.md, "As a container".
#   docker build --build-arg AGENTS="@anthropic-ai/claude-code @openai/codex" --tag opencode-shim .
ARG BASE=debian:trixie-slim

FROM ${BASE} AS build
ARG UV_VERSION=0.13.9
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates git python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir "uv==${UV_VERSION}"
WORKDIR /src
COPY . .
RUN /opt/uv/bin/uv build --wheel --out-dir /dist \
 && /opt/uv/bin/uv export --frozen --no-dev --extra speed --extra otel --extra cluster --no-emit-project --output-file /dist/pins.txt \
 && /opt/uv/bin/uv venv --python /usr/bin/python3 /opt/opencode-shim \
 && /opt/uv/bin/uv pip install --no-cache --python /opt/opencode-shim/bin/python --requirement /dist/pins.txt \
 && /opt/uv/bin/uv pip install --no-cache --python /opt/opencode-shim/bin/python --no-deps /dist/*.whl

FROM ${BASE}
# npm packages of agents, separated by blanks; none: only the built-in mock agent answers.
ARG AGENTS=""
# hadolint ignore=DL3008,DL3016,DL4006,SC2086
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates curl git openssh-client python3 \
 && if [ -n "${AGENTS}" ]; then \
      apt-get install --yes --no-install-recommends nodejs npm && npm install --global --no-fund --no-audit ${AGENTS} && npm cache clean --force; \
    fi \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1000 --shell /bin/bash shim \
 && mkdir /data /projects \
 && chown shim:shim /data /projects
COPY --from=build /opt/opencode-shim /opt/opencode-shim
ENV PATH=/opt/opencode-shim/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/home/shim \
    SHIM_DATA_DIR=/data \
    SHIM_HOSTNAME=0.0.0.0 \
    SHIM_LOG_FORMAT=json \
    PYTHONDONTWRITEBYTECODE=1
USER 1000:1000
WORKDIR /projects
# Sessions, and what agents keep in the home: logins and settings.
VOLUME ["/data", "/home/shim"]
EXPOSE 4096
HEALTHCHECK --interval=60s --timeout=10s --start-period=20s CMD ["opencode-shim", "health"]
ENTRYPOINT ["opencode-shim"]
CMD ["serve"]

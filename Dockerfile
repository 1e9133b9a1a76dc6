# The stand-alone file server, `mcp-filesystem`, as an image that runs without root and without a writable system.

FROM python:3.11-slim AS build
WORKDIR /build
RUN python -m venv /opt/armarium
# Only the required dependencies, in the locked versions: the extras of the other capabilities stay out. A change of our
# own code does not rebuild this layer.
COPY pyproject.toml requirements.lock ./
RUN python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\\n')" \
        > requirements.txt \
    && /opt/armarium/bin/pip install --no-cache-dir --requirement requirements.txt --constraint requirements.lock
COPY README.md LICENSE hatch_build.py requirements-dev.lock ./
COPY scripts/console ./scripts/console
COPY web ./web
COPY src ./src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir dist . \
    && /opt/armarium/bin/pip install --no-cache-dir --no-deps dist/*.whl

FROM python:3.11-slim
# The directories exist with their owner before a volume is mounted over them, so that a new volume inherits both.
RUN useradd --system --uid 10001 --home-dir /var/lib/armarium --shell /usr/sbin/nologin armarium \
    && install --directory --owner=armarium --group=armarium --mode=0750 \
        /var/lib/armarium /data/workspace /data/reference
COPY --from=build /opt/armarium /opt/armarium
COPY config/mcp-filesystem.container.yaml /etc/armarium/mcp-filesystem.yaml
ENV PATH=/opt/armarium/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    XDG_STATE_HOME=/var/lib
USER armarium
WORKDIR /data
EXPOSE 8091
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8091, timeout=3); c.request('GET', '/health'); raise SystemExit(c.getresponse().status != 200)"]
CMD ["mcp-filesystem", "--config", "/etc/armarium/mcp-filesystem.yaml"]

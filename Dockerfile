# A static binary, what it is made of, and the licences of that: no shell, no libc, no package manager.
#
#   docker build -t cilium-leak-healer:0.1.0 .
#   docker buildx build --platform linux/amd64,linux/arm64 -t registry.example.org/cilium-leak-healer:0.1.0 --push .
#
# The compilers run on the machine's own architecture and build for the image's; docs/image.md has more. The builder is a Debian, since
# its Python takes the pinned wheels of Zig and cargo-zigbuild, which come for glibc. The version is that of rust-toolchain.toml; .ci/run
# holds the two together. To pin the builder by digest too: --build-arg RUST_IMAGE=rust:1.95.0-bookworm@sha256:...
ARG RUST_IMAGE=rust:1.95.0-bookworm
FROM --platform=$BUILDPLATFORM ${RUST_IMAGE} AS build

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && rustup target add x86_64-unknown-linux-musl aarch64-unknown-linux-musl
WORKDIR /src
COPY release/requirements.txt release/
RUN python3 -m venv /opt/zig && /opt/zig/bin/pip install --no-cache-dir --requirement release/requirements.txt
ENV PATH=/opt/zig/bin:$PATH

COPY Cargo.toml Cargo.lock LICENSE ./
COPY release release
COPY src src
# Only their names are read: Cargo wants each target that Cargo.toml lists to be there.
COPY tests tests
COPY benches benches
ARG TARGETARCH
ARG SOURCE_DATE_EPOCH=0
RUN release/build-rootfs "${TARGETARCH}" && mv "target/image/${TARGETARCH}/rootfs" /rootfs

# release/build-image runs this stage alone, on a folder in the place of the stage above.
FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG SOURCE=
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="cilium-leak-healer" \
      org.opencontainers.image.description="Per-node watchdog that finds Cilium endpoints left behind by pods that are gone, and heals only what is provably stale" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.created="${CREATED}"
COPY --from=build /rootfs/ /
# Runs as root: the agent's socket is root:cilium, 0660; docs/image.md. deploy/daemonset.yaml takes every capability away.
ENTRYPOINT ["/cilium-leak-healer"]
CMD ["run"]

# A static binary and nothing else: no shell, no libc, no package manager.
#
#   docker build -t cilium-leak-healer:0.1.0 .
#
# The builder's version is that of rust-toolchain.toml; .ci/run holds the two together. The tag does not move once the next Rust
# is out; to pin it by digest as well, pass --build-arg RUST_IMAGE=rust:1.95.0-alpine@sha256:...
ARG RUST_IMAGE=rust:1.95.0-alpine
FROM ${RUST_IMAGE} AS build

# The C headers for the little C that ring has.
RUN apk add --no-cache musl-dev=~1.2

WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY src src
# Only their names are read: Cargo wants each target that Cargo.toml lists to be there.
COPY tests tests

# What decides the bytes: the compiler's version, Cargo.lock, the profile in Cargo.toml, and these paths.
ARG SOURCE_DATE_EPOCH=0
ENV CARGO_INCREMENTAL=0 \
    CFLAGS="-ffile-prefix-map=/usr/local/cargo=cargo -ffile-prefix-map=/src=." \
    RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=/usr/local/cargo=cargo --remap-path-prefix=/usr/local/rustup=rustup --remap-path-prefix=/src=."
RUN cargo build --release --locked --no-default-features --bin cilium-leak-healer \
    && install -m 0755 target/release/cilium-leak-healer /cilium-leak-healer \
    && touch -d "@${SOURCE_DATE_EPOCH}" /cilium-leak-healer

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="cilium-leak-healer" \
      org.opencontainers.image.description="Per-node watchdog that finds Cilium endpoints left behind by pods that are gone, and heals only what is provably stale" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY LICENSE /LICENSE
COPY --from=build /cilium-leak-healer /cilium-leak-healer
# Runs as root: the agent's socket is root:cilium, 0660. deploy/daemonset.yaml takes every capability away.
ENTRYPOINT ["/cilium-leak-healer"]
CMD ["run"]

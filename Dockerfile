# Two stages: build with Rust, run on a small Debian as a user without rights. PostgreSQL is not in the image: set DATABASE_URL.
FROM rust:1.95-bookworm AS build
WORKDIR /build
# Dependencies first, so that a change of ours does not build them again.
COPY Cargo.toml Cargo.lock ./
COPY benches ./benches
RUN mkdir src && echo 'fn main() {}' > src/main.rs && touch src/lib.rs && mkdir -p tests/it && echo > tests/it/main.rs \
 && cargo build --release --locked && rm -rf src
COPY . .
RUN touch src/main.rs src/lib.rs && cargo build --release --locked

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates curl && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --no-create-home bottle
COPY --from=build /build/target/release/bottle /usr/local/bin/bottle
USER 10001
ENV BOTTLE_ADDR=0.0.0.0:3000
EXPOSE 3000
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["curl", "-fsS", "http://127.0.0.1:3000/health/ready"]
ENTRYPOINT ["bottle"]

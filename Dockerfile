# The sidecar as an image: one static binary, no shell, not root.
#
#   docker build --build-arg VERSION=$(git describe --tags --always) --build-arg REVISION=$(git rev-parse --short=12 HEAD) -t ringside .
#
# Mount the configuration at /etc/ringside/ringside.yaml, and a volume at /var/lib/ringside so that the last topology survives
# the container. In a pod it shares the network of the application's container: both meet on 127.0.0.1.

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown REVISION
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.released=${VERSION} -X main.revision=${REVISION}" -o /out/ringside ./cmd/ringside \
 && mkdir -p /out/state

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/ringside /ringside
COPY --from=build --chown=nonroot:nonroot /out/state /var/lib/ringside
ENV STATE_DIRECTORY=/var/lib/ringside
VOLUME /var/lib/ringside
# RESP and admin listen on loopback by default; gossip must reach the other pods.
EXPOSE 7946/tcp 7946/udp
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
  CMD ["/ringside", "health", "--admin", "127.0.0.1:6381"]
ENTRYPOINT ["/ringside"]
CMD ["serve", "-c", "/etc/ringside/ringside.yaml"]

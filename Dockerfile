# syntax=docker/dockerfile:1
# The binary is static, so that the image holds nothing else: no shell, no
# libraries, and the authorities of TLS.
#
#   docker build --build-arg VERSION=$(git describe --tags --always) \
#     --build-arg COMMIT=$(git rev-parse HEAD) -t registry.example/federator .

FROM --platform=$BUILDPLATFORM golang:1.26-alpine AS build
WORKDIR /src
# Modules first: they change less often than the code.
COPY go.mod go.sum ./
COPY api/go.mod api/go.sum api/
COPY client/go.mod client/go.sum client/
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS TARGETARCH
ARG VERSION=devel COMMIT=""
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
    -ldflags "-s -w -X main.buildVersion=$VERSION -X main.buildCommit=$COMMIT" -o /out/federator ./cmd/federator && \
    ln -s federator /out/kubectl-federator && ln -s federator /out/kubectl_complete-federator

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/ /usr/bin/
ENV PATH=/usr/bin HOME=/tmp
USER 65532:65532
EXPOSE 8080 8443
ENTRYPOINT ["/usr/bin/federator"]
CMD ["serve"]

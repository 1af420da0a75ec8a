module federator.dev/federator/client

go 1.26.0

module federator.dev/federator/api

go 1.26.0

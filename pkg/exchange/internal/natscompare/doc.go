// Package natscompare has the benchmark for which the exchange is an HTTP/2 stream and no NATS: the same records over both.
//
// It is a module of its own: only benchmarks use it, and the product's go.mod carries none of its dependencies.
package natscompare

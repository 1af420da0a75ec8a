// Package servertest tests package sinks with the servers that it is for: NATS with JetStream and Alertmanager.
//
// It is a module of its own: only tests use it, and the product's go.mod carries none of what these servers
// are made of.
package servertest

// Package console prints for people: tables, and text that cannot control a terminal
// wherever it comes from.
package console

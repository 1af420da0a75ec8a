// Package component runs the long-lived components of a process: each is one goroutine that
// its owner starts, stops and joins.
package component

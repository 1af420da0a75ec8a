// Package component runs the long-lived parts of a process: each starts as one goroutine,
// is stopped by its owner and joined.
package component

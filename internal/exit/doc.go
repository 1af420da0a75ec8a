// Package exit maps errors to exit codes: 1 for findings and failures, 2 for bad input, 3
// where nothing was found but not everything is known.
package exit

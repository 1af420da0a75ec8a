// Package history is the command that lists and watches what happened.
package history

// Package preview is the command that judges policies of a directory or a commit on the live fleet, by the
// query API, before they are active.
package preview

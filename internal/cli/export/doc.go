// Package export is the command that writes the objects of a fleet to files that other programs read.
package export

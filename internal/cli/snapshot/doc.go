// Package snapshot is the command that saves the objects of clusters to a directory.
package snapshot

// Package tree is the command that draws what an object owns, uses and serves.
package tree

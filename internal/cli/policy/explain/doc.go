// Package explain is the command that explains a verdict line by line.
package explain

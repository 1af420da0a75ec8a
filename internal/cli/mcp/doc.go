// Package mcp is the command that serves the tools for assistants on standard input and output, as the user of a kubeconfig.
package mcp

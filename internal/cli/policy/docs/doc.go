// Package docs is the command that writes the documentation of policies from their METADATA.
package docs

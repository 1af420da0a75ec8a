// Package kept is the command `federator persistence`: what is kept on disk of an index.
package kept

// Package agent is the command that runs in a member that federator cannot reach, and those on the hub that let it join.
package agent

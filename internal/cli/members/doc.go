// Package members is the command that prints the members and their state.
package members

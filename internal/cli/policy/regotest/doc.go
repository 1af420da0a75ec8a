// Package regotest is the command that runs the tests of policies.
package regotest

// Package regotest is the command policy test, which runs the tests of policies.
package regotest

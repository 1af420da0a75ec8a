// Package exchange carries what policies of one process need of the members that others judge.
package exchange

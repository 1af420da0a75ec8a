// Package report writes the results of an evaluation of policies as a table, JSON, SARIF or
// JUnit, and compares two of them.
package report

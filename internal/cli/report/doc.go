// Package report is what an evaluation of policies found, as a table, JSON, SARIF or JUnit,
// and the difference between two of them.
package report

// Package query is the command that evaluates a Rego query over the objects of all members.
package query

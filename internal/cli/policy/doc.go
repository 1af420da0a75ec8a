// Package policy is the command for those who write policies: check, diff, lint, fmt, and,
// in packages of their own, explain, bench, docs and test.
package policy

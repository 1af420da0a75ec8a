// Package policy is the command for policy authors: check, diff, lint and fmt. explain,
// bench, docs and test are packages below it.
package policy

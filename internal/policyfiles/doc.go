// Package policyfiles reads policies and their bindings from directories and files.
package policyfiles

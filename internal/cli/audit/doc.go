// Package audit is the command that has a server compare what it holds with what the members have.
package audit

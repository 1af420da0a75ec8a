// Package actions is the command that lists what was written to members, shows what would be,
// rolls it back, acknowledges and approves, and stops and resumes all writes.
package actions

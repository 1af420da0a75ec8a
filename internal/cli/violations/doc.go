// Package violations is the command that lists and watches the violations of policies.
package violations

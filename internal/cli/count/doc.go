// Package count is the command that counts objects of the fleet.
package count

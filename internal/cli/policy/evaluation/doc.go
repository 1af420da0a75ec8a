// Package evaluation evaluates policies once, on a fleet that was read for it: flags of
// the commands, options of the engine, and the report.
package evaluation

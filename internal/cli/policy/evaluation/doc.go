// Package evaluation evaluates policies once on a fleet that was read for it, for the
// commands that do: their flags, the options of the engine, and the report.
package evaluation
